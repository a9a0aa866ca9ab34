"""The words and numbers of a text: which carry meaning, and what a set of texts is about."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
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


def terms(text: str) -> list[str]:
    """Return the words that carry meaning, in lower case, plurals in -s like their singular."""
    words = (word.lower() for word in WORD.findall(text))
    return [_singular(word) for word in words if len(word) > 1 and word not in STOP_WORDS]


def _singular(word: str) -> str:
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))  # noqa: PLR2004
    return word[:-1] if plural else word


#: Words that make a sentence a claim, but are not what it is about.
NO_TOPIC: Final = frozenset(
    terms(
        "always available called cannot default different example exactly following give given "
        "guarantee instead least longer never new note older possible provide provided require "
        "required requires supported support time value whole work"
    )
)


def numbers(text: str) -> frozenset[str]:
    """Return the numbers in the text, as written but for the commas of thousands."""
    return frozenset(re.sub(r",(?=\d{3})", "", number) for number in NUMBER.findall(text))


def notable(texts: Sequence[str], count: int) -> list[str]:
    """Return words and two-word phrases that many texts share, weightiest first, as written."""
    texts_with: Counter[str] = Counter()
    written: dict[str, Counter[str]] = {}
    for text in texts:
        for key, form in dict(_phrases(text)).items():
            texts_with[key] += 1
            written.setdefault(key, Counter())[form] += 1
    shared = {key: n * (1.6 if " " in key else 1.0) for key, n in texts_with.items() if n > 1}
    ranked = sorted(shared, key=lambda key: (-shared[key], key))
    chosen: list[str] = []
    taken: set[str] = set()  # words of those that are chosen
    for key in ranked:
        if len(chosen) == count:
            break
        if taken.isdisjoint(key.split()):
            chosen.append(key)
            taken.update(key.split())
    return [max(written[key].items(), key=lambda item: (item[1], item[0]))[0] for key in chosen]


def _phrases(text: str) -> Iterable[tuple[str, str]]:
    words = list(WORD.finditer(text))
    for index, word in enumerate(words):
        one = terms(word[0])
        if not one or one[0] in NO_TOPIC or word[0][0].isdigit() or len(one[0]) < 3:  # noqa: PLR2004
            continue
        yield one[0], word[0]
        if index + 1 < len(words):
            follower = words[index + 1]
            two = terms(follower[0])
            if two and text[word.end() : follower.start()] == " " and _is_topic(two[0]):
                yield f"{one[0]} {two[0]}", text[word.start() : follower.end()]


def _is_topic(term: str) -> bool:
    return term.isalpha() and term not in NO_TOPIC
