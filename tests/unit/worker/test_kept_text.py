"""Texts as a record keeps them: cut with a sign of it, and fit for every store."""

from __future__ import annotations

import math
from typing import NoReturn

import pytest

from leasehold.worker.failures.kept_text import (
    MAX_TEXT_CHARS,
    bounded,
    cut,
    json_of,
    size,
    try_text,
)

HALF = "\ud83d"  # half of a character, which UTF-8 does not have


@pytest.mark.parametrize(
    ("text", "kept"), [("abc", "abc"), ("abcd", "ab…"), ("", ""), (f"a{HALF}", "a?")]
)
def test_a_text_that_is_cut_says_so_and_one_that_fits_is_whole(text: str, kept: str) -> None:
    assert cut(text, 3) == kept


@pytest.mark.parametrize("letter", ["a", '"', "\n", "\0", "ü", "😀"])
def test_a_text_takes_no_more_room_than_there_is_however_json_writes_it(letter: str) -> None:
    kept = bounded(letter * MAX_TEXT_CHARS, 1000)

    assert 300 < size(kept) <= 1000
    assert kept.endswith("…")


def test_values_that_no_store_could_keep_are_kept_as_texts() -> None:
    assert json_of({f"k{HALF}": [f"v{HALF}", math.nan, math.inf]}) == (
        '{"k?":["v?","NaN","Infinity"]}'
    )


def test_an_object_that_has_no_words_says_what_it_raised() -> None:
    def fail() -> NoReturn:
        raise LookupError

    assert try_text(fail) == "Its words raised LookupError."
