"""Cues: patterns of words which show that a sentence states something checkable."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from pipelines.review.code_spans import without_code
from pipelines.review.models import ClaimKind


class Cue(NamedTuple):
    """A pattern of claims of one kind, and how much such a claim states, 0 to 1."""

    kind: ClaimKind
    weight: float
    pattern: re.Pattern[str]


UNITS: Final = (
    r"%|°|ms|µs|us|ns|s|sec|seconds?|min|minutes?|h|hours?|days?|weeks?|months?|years?"
    r"|bytes?|bits?|[KMGT]i?B|[km]?m|kg|[kMG]?Hz|px|x|times|fold|files?|lines?|requests?"
    r"|users?|runs?|steps?|attempts?|retries|calls?|writes?|reads?|characters|percent"
)


def _cue(kind: ClaimKind, weight: float, pattern: str) -> Cue:
    return Cue(kind, weight, re.compile(pattern, re.IGNORECASE))


#: The first that fits gives a sentence its kind; each further kind that fits adds a little weight.
CUES: Final[Sequence[Cue]] = (
    _cue("number", 0.8, rf"(?<![\w.])\d[\d.,]*\s?(?:{UNITS})(?!\w)"),
    _cue(
        "rule",
        0.75,
        r"\b(?:must|shall|never|always|required?|requires|mandatory|forbidden|prohibited"
        r"|cannot|can't|may not|not allowed|at (?:least|most) once|exactly one|guarantees?d?"
        r"|deprecated|by default|defaults? to|only (?:if|when|after|once|one))\b",
    ),
    _cue(
        "comparison",
        0.7,
        r"\b(?:more|less|fewer|larger|smaller|faster|slower|higher|lower|better|worse|older|newer"
        r"|longer|shorter|rather|cheaper) than\b|\bat (?:least|most)\b|\bup to\b|\bas \w+ as\b"
        r"|\binstead of\b|\bunlike\b|\bcompared (?:to|with)\b",
    ),
    _cue(
        "definition",
        0.7,
        r"^(?:an? |the )?[\w`./ -]{2,40}? (?:is|are) (?:an?|the|one|our|what|where|how)\b"
        r"|\b(?:means|refers to|stands for|is called|are called|is defined as|consists of)\b",
    ),
    _cue("number", 0.55, r"(?<![\w.#-])\d[\d.,]*(?![\w-])"),
)

#: What a sentence begins with that leans on the sentence before it.
LEANING: Final = re.compile(
    r"(?:th(?:is|at|ese|ose|en|us|erefore)|it|they|he|she|its|their|such|both|so|but|and|or|also"
    r"|however|for example|for instance|e\.g\.|in this case|otherwise|here|there|if so|note"
    r"|must|can|should|may|will|defaults?|returns?|what|where|as|see|not good)\b",
    re.IGNORECASE,
)

LONGEST_CLAIM: Final = 500  # characters; what is longer states too much to be checked

#: What prose has little of, and notation and tables have much of.
NOTATION: Final = re.compile(r"[{}()\[\]<>|=→·*/\\]")


def cue(sentence: str) -> tuple[ClaimKind, float] | None:
    """Return the kind of claim the sentence makes and its weight, or None if it makes none."""
    if not _is_statement(sentence):
        return None
    bare = without_code(sentence)
    hits = [each for each in CUES if each.pattern.search(bare)]
    if not hits:
        return None
    bonus = 0.05 * (len({each.kind for each in hits}) - 1)
    return hits[0].kind, round(min(1.0, (hits[0].weight + bonus) * _form(sentence)), 3)


def lead(sentence: str) -> float | None:
    """Return the weight of the sentence as the opening of its document, or None if it is none."""
    return round(0.65 * _form(sentence), 3) if _is_statement(sentence) else None


def _is_statement(sentence: str) -> bool:
    """Say whether it is prose and whole: no fragment, question or announcement, not all code."""
    if len(sentence) > LONGEST_CLAIM:  # first: the patterns above are for short texts only
        return False
    words = without_code(sentence, " ").split()
    letters = sum(character.isalpha() for character in sentence)
    return (
        len(words) >= 4  # noqa: PLR2004
        and letters >= 0.6 * len(sentence)
        and not sentence.endswith(("?", ":", "…", "..."))
    )


def _form(sentence: str) -> float:
    """Return a factor from 0 to 1: how well the sentence stands alone."""
    words = len(sentence.split())
    length = min(1.0, words / 8) * min(1.0, 35 / words)
    whole = 1.0 if sentence.endswith((".", "!", "。", ")", "”", '"')) else 0.85
    bare = len(NOTATION.findall(without_code(sentence)))
    notation = 0.7 if bare > 2 or len(NOTATION.findall(sentence)) > 6 else 1.0  # noqa: PLR2004
    return length * whole * notation * (0.6 if LEANING.match(sentence) else 1.0)
