"""The table of overlays."""

from __future__ import annotations

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.domain.step_pause import Hold
from leasehold.domain.summary import Summary
from leasehold.errors import DuplicateKeyError
from leasehold.presentation.run_state import OVERLAYS
from leasehold.registry.registry import Registry


def test_each_overlay_is_a_field_of_a_manifest_and_of_its_summary() -> None:
    assert Summary.model_fields["held"].annotation == Hold | None
    assert isinstance(vars(Manifest)["held"], property)  # it follows from the dispatch
    for overlay in (one for one in OVERLAYS if one.key != "held"):
        assert Manifest.model_fields[overlay.key].annotation is bool
        assert Summary.model_fields[overlay.key].annotation is bool


def test_each_overlay_can_be_told_from_the_others_and_is_explained() -> None:
    for name in ("label", "icon", "colour", "tooltip"):
        assert len({getattr(overlay, name) for overlay in OVERLAYS}) == len(OVERLAYS)
    assert [entry.key for entry in OVERLAYS if not entry.tooltip.endswith(".")] == []
    assert [entry.key for entry in OVERLAYS if len(entry.icon) != 1] == []


def test_an_overlay_stands_there_once() -> None:
    with pytest.raises(DuplicateKeyError, match="'paused' twice"):
        Registry("overlays", [OVERLAYS["paused"], OVERLAYS["paused"]])
