"""Limits on what steps do at once or a minute: as an entry declares them, and their keys.

A key may have parts of the run in it, so that one limit of an entry is many in the store:
`model:{given.model}` counts each model on its own, and `tenant:{labels.tenant}` each tenant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from leasehold.errors import LimitKeyError
from leasehold.frozen import dataclass

#: Each slot is a document, and a full limit is looked through.
MAX_ATTEMPTS_AT_ONCE: Final = 1000
MAX_ATTEMPTS_PER_MINUTE: Final = 100_000
_MAX_KEY_CHARS: Final = 200

_PART: Final = re.compile(r"\{([^{}]*)\}")
_GIVEN: Final = re.compile(r"given(?:\.[A-Za-z_]\w*)+")
_LABEL: Final = re.compile(r"labels\.[^.:{}\s]{1,64}")
_KEY_WORDS: Final = (
    "1 to 200 printable characters, in which {given.FIELD} and {labels.NAME} stand for parts of "
    "the run"
)

_NO_VALUE: Final = "is neither a whole number nor a text of 1 to 200 printable characters"

#: A field, its value, and what is allowed in its place.
Problem = tuple[str, object, str]


@dataclass(frozen=True, slots=True)
class Limit:
    """How much may be done at once, or a minute, under one key, by all workers of a store.

    Args:
        key: what is limited; `{given.FIELD}` and `{labels.NAME}` in it stand for what the step is
            given, and for labels of the run.
        at_once: how many attempts hold a slot of the key at a time; None: any number.
        per_minute: how many begin in any 60 seconds; None: any number.
        per_call: whether the handler takes it, by `ctx.limit(key)`; else each attempt of the step
            takes it before its handler begins, and has it to its end.
        adaptive: whether a 429 with Retry-After, of what holds it, halves it; it grows again.
    """

    key: str
    at_once: int | None = None
    per_minute: int | None = None
    per_call: bool = False
    adaptive: bool = False

    def problems(self) -> Iterator[Problem]:
        """Yield what keeps it from being a limit."""
        if not isinstance(self.key, str) or not _is_key(self.key):
            yield "limits.key", self.key, _KEY_WORDS
            return
        for part in _PART.findall(self.key):
            if not (_GIVEN.fullmatch(part) or _LABEL.fullmatch(part)):
                allowed = "{given.FIELD} or {labels.NAME}"
                yield "limits.key", f"{{{part}}}", allowed
        if "{" in _PART.sub("", self.key) or "}" in _PART.sub("", self.key):
            yield "limits.key", self.key, "a key whose braces are closed"
        yield from _number_problems("limits.at_once", self.at_once, MAX_ATTEMPTS_AT_ONCE)
        yield from _number_problems("limits.per_minute", self.per_minute, MAX_ATTEMPTS_PER_MINUTE)
        for field in ("per_call", "adaptive"):
            if not isinstance(value := getattr(self, field), bool):
                yield f"limits.{field}", value, "True or False"
        if self.at_once is None and self.per_minute is None:
            yield "limits", self.key, "a limit with at_once or per_minute"

    @property
    def shared(self) -> tuple[int | None, int | None, bool]:
        """Its part that all steps with its key have to say alike."""
        return self.at_once, self.per_minute, self.adaptive

    @property
    def number_words(self) -> str:
        """Its numbers, for people."""
        named = ((self.at_once, "at once"), (self.per_minute, "a minute"))
        return " and ".join(f"{number} {unit}" for number, unit in named if number is not None)

    @property
    def given_fields(self) -> tuple[str, ...]:
        """The first names of the fields of what the step is given that its key has."""
        parts = (part.split(".") for part in _PART.findall(self.key))
        return tuple(names[1] for names in parts if names[0] == "given")

    def key_for(
        self,
        step: str,
        labels: Mapping[str, str],
        given: Callable[[], Any],
        default: Callable[[Sequence[str]], Any],
    ) -> str:
        """Return the key for a run.

        Args:
            step: the step, for the error.
            labels: of the run.
            given: returns what the step is given; not called where the key has no part of it.
            default: returns what the model of the step has at a path that is not given, or None.

        Raises:
            LimitKeyError: a part is missing, or cannot be part of a key.
        """

        def value(found: re.Match[str]) -> str:
            source, *names = found[1].split(".")
            part: Any = labels if source == "labels" else given()
            for name in names:
                part = part.get(name) if isinstance(part, Mapping) else None
            if part is None and source == "given":
                part = default(names)
            if isinstance(part, bool) or not isinstance(part, str | int) or not _is_key(str(part)):
                problem = "is missing" if part is None else _NO_VALUE
                raise LimitKeyError(step=step, limit=self.key, part=found[1], problem=problem)
            return str(part)

        key = _PART.sub(value, self.key)
        if not _is_key(key):
            problem = f"makes it longer than {_MAX_KEY_CHARS} characters"
            raise LimitKeyError(step=step, limit=self.key, part="its value", problem=problem)
        return key


class Bound(NamedTuple):
    """A limit as it holds for a run: how many a key may have, at once or a minute.

    Args:
        limit: the limit as its entry has it.
        key: for the run.
        is_rate: whether `most` are a minute; else at once.
        most: how many.
        lowered_to: how many there may be now, or lately, where it adapts; None: all.
    """

    limit: Limit
    key: str
    is_rate: bool
    most: int
    lowered_to: int | None = None

    @property
    def name(self) -> str:
        """The name of its line, by which the runs are found that wait for it."""
        return name_of(self.key, is_rate=self.is_rate)


def name_of(key: str, *, is_rate: bool) -> str:
    """Return the name of the line of a key."""
    return f"{key} {'a minute' if is_rate else 'at once'}"


def words_of(key: str, most: int, *, is_rate: bool) -> str:
    """Return a limit for people."""
    return f"limit {key} ({most} {'a minute' if is_rate else 'at once'})"


def bounds_of(limit: Limit, key: str) -> Iterator[Bound]:
    """Yield what a limit comes to for a run."""
    if limit.at_once is not None:
        yield Bound(limit, key, is_rate=False, most=limit.at_once)
    if limit.per_minute is not None:
        yield Bound(limit, key, is_rate=True, most=limit.per_minute)


def _is_key(text: str) -> bool:
    return 0 < len(text) <= _MAX_KEY_CHARS and text.isprintable() and bool(text.strip())


def _number_problems(field: str, value: Any, most: int) -> Iterator[Problem]:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and 1 <= value <= most):
        yield field, value, f"a whole number from 1 to {most:,}, or None"
