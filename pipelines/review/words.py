"""The words and numbers of a text."""

import re
from typing import Final

WORD: Final = re.compile(r"[^\W_](?:[\w'\u2019-]*[^\W_])?")
NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")
_STOP_WORDS = (
    "a about after all also an and any are as at be because been before being below between both "
    "but by can could did do does doing done down each either else every few for from further get "
    "gets had has have having he her here him his how however i if in into is it its itself just "
    "let like made make makes many may me might more most much must my need no nor not now of off "
    "on once one only or other our out over own per same see set several shall she should since so "
    "some such than that the their them then there these they this those through thus to too two "
    "under until up upon us use used uses using very via was we well were what when where whether "
    "which while who whose why will with within without would yes yet you your"
)
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())


def words(text: str) -> frozenset[str]:
    """Return all words of the text, in lower case."""
    return frozenset(word.lower() for word in WORD.findall(text))


def terms(text: str) -> list[str]:
    """Return the words that carry meaning, in lower case, plurals in -s like their singular."""
    every = (word.lower() for word in WORD.findall(NUMBER.sub("", text)))
    return [_singular(word) for word in every if len(word) > 1 and word not in STOP_WORDS]


def numbers(text: str) -> frozenset[str]:
    """Return the numbers in the text, as written but for the commas of thousands."""
    return frozenset(re.sub(r",(?=\d{3})", "", number) for number in NUMBER.findall(text))


def same_words(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is equal in texts that say the same: their words, and their numbers."""
    return frozenset(terms(text)) or frozenset([text]), numbers(text)


def _singular(word: str) -> str:
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))  # noqa: PLR2004
    return word[:-1] if plural else word
