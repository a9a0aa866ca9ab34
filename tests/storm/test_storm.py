"""In a storm no announcement is missed, and none comes twice without being counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.domain.delivery import DeliveryState
from tests.conformance.stores import DOCUMENTS
from tests.emulators import need_firestore
from tests.storm.catalog import NAMES
from tests.storm.scenario import Aftermath, Storm, survive

ANNOUNCEMENTS = 10


def check(after: Aftermath) -> None:
    assert after.missing == []
    assert after.unexplained == []
    assert after.in_state(DeliveryState.ANNOUNCED) == after.expected
    assert len(after.deliveries) == after.expected
    assert after.keys == after.expected  # a provider that goes by the keys tells nobody twice


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_in_a_storm_everybody_is_told_and_what_is_told_twice_is_counted(
    tmp_path: Path, kind: str
) -> None:
    if kind == "firestore":
        need_firestore()

    after = survive(Storm(kind, ANNOUNCEMENTS), tmp_path)

    check(after)
    assert after.expected == ANNOUNCEMENTS * len(NAMES)
    assert after.words[None] > 0  # processes were killed
    assert after.unknown >= after.extra > 0
