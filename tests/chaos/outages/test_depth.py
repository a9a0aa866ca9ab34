"""Values that no later reader could read are refused at the door."""

from __future__ import annotations

import pytest

from leasehold.domain.json_text import MAX_JSON_LEVELS
from leasehold.errors import InvalidInputError
from tests.chaos.outages.catalog import nested
from tests.chaos.outages.conftest import Make

TOO_DEEP = "it is nested more than 198 levels deep"
#: A busy machine is not what these are about: the lease of the outages is half a second.
PATIENT = {"PIPELINE_LEASE_TTL_S": "60"}
PATIENCE_S = 120.0


@pytest.mark.parametrize("depth", [MAX_JSON_LEVELS + 1, 300, 100_000])
def test_an_input_that_is_nested_too_deep_is_refused(make: Make, depth: int) -> None:
    with make(workers=0) as engine, pytest.raises(InvalidInputError, match=TOO_DEEP):
        engine.start("makes", nested(depth))


def test_an_input_as_deep_as_may_be_runs(make: Make) -> None:
    with make(**PATIENT) as engine:
        run = engine.start("makes", {"deep": nested(MAX_JSON_LEVELS - 1)})

        assert engine.wait(run.run_id, PATIENCE_S).status == "COMPLETED"


@pytest.mark.parametrize("depth", [MAX_JSON_LEVELS + 1, 300, 100_000])
def test_an_output_that_is_nested_too_deep_fails_its_attempt(make: Make, depth: int) -> None:
    """Kept, it would fail each attempt of the next step."""
    with make(**PATIENT) as engine:
        done = engine.wait(engine.start("nests", {"depth": depth}).run_id, PATIENCE_S)

    assert done.current_step == "nest"
    assert done.error is not None
    assert done.error.code == "invalid_output"
    if depth == MAX_JSON_LEVELS + 1:
        assert TOO_DEEP in done.error.message


@pytest.mark.parametrize(
    ("depth", "code"), [(MAX_JSON_LEVELS, None), (MAX_JSON_LEVELS + 1, "invalid_request")]
)
def test_a_checkpoint_that_is_nested_too_deep_is_refused(
    make: Make, depth: int, code: str | None
) -> None:
    with make(**PATIENT) as engine:
        run = engine.start("keeps_deep", {"depth": depth})
        done = engine.wait(run.run_id, PATIENCE_S)

    assert (None if done.error is None else done.error.code) == code
