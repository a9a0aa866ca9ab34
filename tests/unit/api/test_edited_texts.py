"""Texts of a run that were edited, or damaged by a disk: they are shown, and fail no call."""

from __future__ import annotations

import pytest

from leasehold.api.results import CallReport
from leasehold.domain.checkpoint import CallResult
from leasehold.domain.children import EachRule
from leasehold.domain.manifest_parts import Place
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.services.check_chain import misfit_at

DAMAGED = ["", "{", "\x00", "1 2"]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_recorded_result_that_is_not_json_is_answered_as_the_text_that_it_is(text: str) -> None:
    call = CallResult(step="ask", trial=1, key="k", type="str", inline=text)

    assert CallReport.of(call).result == text


@pytest.mark.parametrize("text", DAMAGED)
def test_a_list_that_is_not_json_is_what_no_each_can_take(text: str) -> None:
    places = {"notes": Place(step_type="note", each=EachRule())}

    misfit = misfit_at(NO_CATALOG, None, places, "notes", text)  # type: ignore[arg-type]

    assert misfit is not None
    assert misfit.problem == "it is not JSON: it was edited, or damaged"
