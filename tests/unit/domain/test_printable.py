"""How numbers of things are said, and how a text is cut."""

from __future__ import annotations

import pytest

from leasehold.domain.printable import counted, one_line


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


def test_a_text_is_cut_only_where_it_is_longer_than_it_may_be() -> None:
    assert [one_line("a\nbcde", most) for most in (6, 5, None)] == ["a bcde", "a bc…", "a bcde"]
