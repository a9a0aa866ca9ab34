"""How numbers of things are said."""

from __future__ import annotations

import pytest

from leasehold.domain.printable import counted


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("run",), "0 runs"),
        (1, ("run",), "1 run"),
        (2, ("run",), "2 runs"),
        (1_000, ("byte",), "1,000 bytes"),
        (1, ("try", "tries"), "1 try"),
        (0, ("try", "tries"), "0 tries"),
        (1, ("run waits", "runs wait"), "1 run waits"),
    ],
)
def test_one_is_one_and_all_others_are_several(
    count: int, words: tuple[str, ...], said: str
) -> None:
    assert counted(count, *words) == said
