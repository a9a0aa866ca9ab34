"""Secrets are cut out of the record of an error: out of values by their names, out of texts.

Too much is cut rather than too little. What stays as it is: what merely counts tokens, what is
absent, and what is only true or false.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, pairwise, product
from typing import Any, Final, NamedTuple

import pydantic_core

from leasehold.domain.manifest import Manifest
from leasehold.domain.secret_names import block_below, hides, may_name, spans_by_name
from leasehold.domain.secret_shapes import Span, shapes
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceEvent

# Secrets in a table whose header names them: CSV, Markdown, and what databases and tools print.


_WORD: Final = r"[\w.-]{1,60}"
_WORDS: Final = rf"{_WORD}(?:[ ]{_WORD}){{0,3}}"
_BAR: Final = r"\|"  # also before the first cell, and behind the last one
_QUOTED: Final = r"\"[^\"\n]{1,60}\"|'[^'\n]{1,60}'"


class _Kind(NamedTuple):
    """How a line is cut into cells.

    Attributes:
        mark: what a line has to have.
        cell: a cell of any line.
        header: a line of names alone.
        is_ruled: whether a line of dashes stands below the header.
    """

    mark: str
    cell: re.Pattern[str]
    header: re.Pattern[str]
    is_ruled: bool = False


def _between(mark: str, name: str) -> _Kind:
    """Return how cells stand between marks, where a name is written so."""
    cell = rf"(?:^|{mark})(?P<cell>[ ]?\"(?:[^\"]|\"\")*+\"[ ]?|[^{mark}]*+)"
    name = rf"[ ]{{0,60}}+(?>{name}{'|' if mark == _BAR else ''})[ ]{{0,60}}+"
    header = re.compile(rf"{name}(?:{mark}{name})+")
    return _Kind(mark[-1], re.compile(cell), header, is_ruled=mark == _BAR)


_KINDS: Final = (
    _between(",", f"{_QUOTED}|{_WORD}"),
    _between(";", f"{_QUOTED}|{_WORD}"),
    _between("\t", f"{_QUOTED}|{_WORDS}"),
    _between(_BAR, _WORDS),
    # NAME   TOKEN
    _Kind(
        "  ",
        re.compile(r"(?P<cell>\S++(?:[ ]\S++)*+)"),
        re.compile(r"[A-Z][A-Z_-]*+(?:[ ]{1,60}[A-Z][A-Z_-]*+)+[ ]{0,60}"),
    ),
)
_QUOTES: Final = re.compile("[\"'`]")
_RULER: Final = re.compile(r"[\s|+:=-]{3,}")


class _Table(NamedTuple):
    """What a header says of the lines below it: how they are cut, and what hides what."""

    kind: _Kind
    names: tuple[str, ...]


class SecretColumns:
    """Finds the secrets in the lines of a table, which come one by one."""

    def __init__(self) -> None:
        self._above: _Table | None = None
        self._is_ruled = False

    def spans(self, line: str) -> Iterator[Span]:
        """Yield where a secret stands in this line."""
        table = self._above
        if table is not None and _RULER.fullmatch(line):
            self._is_ruled = True
            return
        if table is not None and (self._is_ruled or not table.kind.is_ruled):
            cells = [*table.kind.cell.finditer(line)]
            if len(cells) == len(table.names):
                for name, cell in zip(table.names, cells, strict=True):
                    if cell["cell"].strip() and hides(name, cell["cell"].strip(' "')):
                        yield _trimmed(cell)
                return
        self._above, self._is_ruled = _header(line), False


def spans_in_columns(text: str) -> Iterator[Span]:
    """Yield where a secret stands in the tables of a text."""
    if "\n" not in text:
        return
    columns, place = SecretColumns(), 0
    for line in text.split("\n"):
        for start, end in columns.spans(line):
            yield place + start, place + end
        place += len(line) + 1


def _header(line: str) -> _Table | None:
    line = line.rstrip("\r")
    behind = _QUOTES.split(line)[-1]  # of a table that is shown as a literal
    for kind, text in product(_KINDS, {line, behind}):
        if kind.mark in text and kind.header.fullmatch(text) and may_name(text):
            names = tuple(found["cell"] for found in kind.cell.finditer(text))
            if any(hides(name, "") for name in names):
                return _Table(kind, names)
    return None


def _trimmed(cell: re.Match[str]) -> Span:
    start, text = cell.start("cell"), cell["cell"]
    return start + len(text) - len(text.lstrip()), start + len(text.rstrip())


REDACTED: Final = "[redacted]"

#: How many characters of a text, or of all values together, are looked at; the rest is dropped.
MAX_SEARCHED_CHARS: Final = 20_000
_MAX_LEVELS: Final = 30
_MAX_SECRET_CHARS: Final = 500
_MAX_BITS: Final = 64
_MORE: Final = "…"

#: A secret that was seen is looked for elsewhere; a shorter one could be part of any word.
_MIN_SECRET_CHARS: Final = 6
_MAX_KEY_LINES: Final = 60
_MAX_SECRETS_KNOWN: Final = 50

#: What names a value in `{"name": …, "value": …}`.
_TITLES: Final = ("name", "key", "header", "field")
_USER_OPTION: Final = re.compile(r"-[A-Za-z]{0,6}[uU]|--(?:proxy-)?user")


class Redaction:
    """Cuts the secrets out of one error.

    A secret that a name gave away is cut wherever else it stands, so values come before texts.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._left = 0

    def text(self, text: str) -> str:
        """Return the text without its secrets."""
        looked_at = _beginning(text)
        more = _MORE if len(looked_at) < len(text) else ""
        return self.without(looked_at, _secrets_in(looked_at)) + more

    def without(self, text: str, secrets: Iterable[Span]) -> str:
        """Return the text without the secrets at these places, and without those that are known."""
        parts, place = [], 0
        for start, end in sorted([*secrets, *self._places(text)]):
            if start >= place:
                parts += [text[place:start], REDACTED]
            place = max(place, end)
        return "".join([*parts, text[place:]])

    def value(self, value: Any, at_most: int = MAX_SEARCHED_CHARS) -> Any:
        """Return the value as plain JSON values without its secrets, so much of it.

        Args:
            value: anything.
            at_most: how many characters of it are looked at, in all.
        """
        self._left = at_most
        try:
            return self._cut(value, 0)
        except Exception as failure:  # noqa: BLE001 - a handler's class may do anything
            return f"<{type(value).__name__}, which raised {type(failure).__name__}>"

    def fact(self, name: str, value: Any) -> Any:
        """Return a value of this name, as it is unless it is a secret or has one in it."""
        if hides(name, value):
            return self.hidden(value)
        if isinstance(value, str):
            return self.text(value)
        return self.value(value) if isinstance(value, Mapping | list | tuple) else value

    def hidden(self, value: Any, depth: int = 0) -> str:
        """Return what stands in the place of a secret, and know the secret from now on."""
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, str):
            if (
                _MIN_SECRET_CHARS <= len(value) <= _MAX_SECRET_CHARS
                and len(self._known) < _MAX_SECRETS_KNOWN
            ):
                self._known.add(value)
        elif depth < _MAX_LEVELS and isinstance(value, Mapping | list | tuple):
            within = value.values() if isinstance(value, Mapping) else value
            for one in islice(within, _MAX_SECRETS_KNOWN):
                self.hidden(one, depth + 1)
        return REDACTED

    def _cut(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_LEVELS:
            return _MORE
        match value:
            case None | bool() | float():
                safe: Any = value
            case int():
                safe = value if value.bit_length() < _MAX_BITS else hex(value)[:_MAX_SECRET_CHARS]
            case str():
                safe = self._some(str(value))
            case bytes() | bytearray():
                safe = self._some(bytes(value[: 4 * MAX_SEARCHED_CHARS]).decode(errors="replace"))
            case Mapping():
                safe = self._mapping(value, depth)
            case list() | tuple() | set() | frozenset():
                safe = self._sequence(value, depth)
            case _:
                safe = self._cut(_plain(value), depth + 1)
        return safe

    def _some(self, text: str) -> str:
        """Return as much of the text as there is room for; to cut it first could hide a secret."""
        safe = self.text(text)
        room = max(0, self._left)
        self._left -= len(safe)
        return safe if len(safe) <= room else safe[:room] + _MORE

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        titles = [value.get(key) for word in _TITLES for key in (word, word.title())]
        title = " ".join(one for one in titles if isinstance(one, str))  # {"name": …, "value": …}
        found = {}
        for key, one in islice(value.items(), self._left + 1):
            name = key if isinstance(key, str) else repr(key)
            is_secret = hides(name, one) or (name in ("value", "Value") and hides(title, one))
            safe = self._cut(name, depth)
            found[safe] = self.hidden(one) if is_secret else self._cut(one, depth + 1)
        return found

    def _sequence(self, value: Collection[Any], depth: int) -> list[Any]:
        some = list(islice(value, self._left + 1))
        if len(some) == 2 and isinstance(name := _named(some[0]), str) and hides(name, some[1]):  # noqa: PLR2004 - a pair
            return [some[0] if isinstance(some[0], str) else name, self.hidden(some[1])]
        program = some[0] if some and isinstance(some[0], str) else ""
        return [
            self.hidden(one) if _follows_option(program, before, one) else self._cut(one, depth + 1)
            for before, one in pairwise(["", *some])
        ]

    def _places(self, text: str) -> Iterator[Span]:
        for secret in self._known:
            for form in {secret, pydantic_core.to_json(_stored(secret)).decode()[1:-1]}:
                for found in re.finditer(re.escape(form), text):
                    yield found.span()


def without_secrets(text: str) -> str:
    """Return what a handler says, a line of a log or the name of a phase, without its secrets."""
    return Redaction().text(text)


class LinesRedaction:
    """Cuts the secrets out of lines that come one by one: what names one may stand in those before.

    A private key is known by its first line, and a block of YAML by the line above it. A column of
    a table is known by its header, and a value by the name on the line before.
    """

    def __init__(self) -> None:
        self._before = ""
        self._key_lines = 0  # how many more may be of a private key
        self._indent: int | None = None  # of the line that a block stands below
        self._columns = SecretColumns()

    def line(self, text: str) -> str:
        """Return the line without what those before tell of it."""
        before, self._before = self._before, text
        if self._is_of_key(text) or self._is_of_block(text):
            return REDACTED
        spans = [*self._columns.spans(text)]
        if before and may_name(before):
            start = len(before) + 1
            found = _secrets_in(f"{before}\n{text}")
            spans += [(max(0, begin - start), end - start) for begin, end in found if end > start]
        return Redaction().without(text, spans)

    def _is_of_key(self, text: str) -> bool:
        if "-----BEGIN" in text and "PRIVATE KEY" in text:
            self._key_lines = _MAX_KEY_LINES
        if not self._key_lines:
            return False
        self._key_lines = 0 if "-----END" in text else self._key_lines - 1
        return True

    def _is_of_block(self, text: str) -> bool:
        if self._indent is not None and text.strip():
            if len(text) - len(text.lstrip(" ")) > self._indent:
                return True
            self._indent = None
        if text.strip():
            self._indent = block_below(text)
        return False


def _secrets_in(text: str) -> Iterator[Span]:
    """Yield where a secret stands in the text, also where its characters are escaped."""
    yield from _plain_secrets_in(text)
    if has_escapes(text):
        plain = Unescaped(text)
        for start, end in _plain_secrets_in(plain.text):
            yield plain.origin(start), plain.origin(end)


def _plain_secrets_in(text: str) -> Iterator[Span]:
    yield from shapes(text)
    if may_name(text):
        yield from spans_by_name(text)
        yield from spans_in_columns(text)


def _beginning(text: str) -> str:
    """Return as much of the text as is looked at; no word of it is cut in two."""
    if len(text) <= MAX_SEARCHED_CHARS:
        return text
    head = text[:MAX_SEARCHED_CHARS]
    return head[: max(head.rfind(" "), head.rfind("\n"), MAX_SEARCHED_CHARS - _MAX_SECRET_CHARS)]


def _follows_option(program: str, before: Any, value: Any) -> bool:
    """Return whether a word of a command is a secret, by the option before it."""
    if not isinstance(before, str):
        return False
    has_user = program.endswith("curl") and _USER_OPTION.fullmatch(before)
    return bool(has_user) or (before.startswith("--") and hides(before, value))


def _named(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    """Return a model, a time or the like as JSON has it; anything else in its own words."""
    try:
        return pydantic_core.to_jsonable_python(value, fallback=repr)
    except Exception:  # noqa: BLE001 - a handler's class may do anything
        return repr(value)


def _stored(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


# How a character is written where it may not stand itself: in addresses, markup and literals.


#: `%3D` and `%253D`; `&#61;`, `&#x3D;` and `&quot;`, also with an `&amp;` for the `&`; `\u003d`,
#: `\x3d` and `\n`, also within another literal.
_ESCAPE: Final = re.compile(
    r"%(?:25){0,2}(?P<percent>[2-7][0-9A-Fa-f])"
    r"|&(?:amp;){0,2}(?:#(?P<number>\d{2,3})|#[xX](?P<hex>[2-7][0-9A-Fa-f])"
    r"|(?P<word>amp|apos|colon|equals|gt|lt|nbsp|quot));"
    r"|\\{1,4}(?:(?:u00|x)(?P<code>[2-7][0-9A-Fa-f])|(?P<blank>[nrt])(?![\w\\]*[:\\]))"
)
_CHARACTERS: Final = {
    "amp": "&",
    "apos": "'",
    "colon": ":",
    "equals": "=",
    "gt": ">",
    "lt": "<",
    "nbsp": " ",
    "quot": '"',
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
#: Signs that people and their programs put in the place of plain ones, each for one.
_SIGNS: Final = str.maketrans(
    "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2018\u2019\uff1a\uff1d\u00a0\u202f", '""""""\'\':=  '
)


class Unescaped:
    """A text with each character as itself.

    Attributes:
        text: it.
    """

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._starts: list[int] = []  # of each part, in the text
        self._origins: list[int] = []  # of each part, in what the text was made of
        place = size = 0
        for found in _ESCAPE.finditer(text):
            for part, origin in (
                (text[place : found.start()], place),
                (_character(found), found.start()),
            ):
                parts.append(part)
                self._starts.append(size)
                self._origins.append(origin)
                size += len(part)
            place = found.end()
        self._starts.append(size)
        self._origins.append(place)
        self.text: Final = "".join([*parts, text[place:]]).translate(_SIGNS)

    def origin(self, place: int) -> int:
        """Return where the character at this place began in what the text was made of."""
        part = bisect_right(self._starts, place) - 1
        return self._origins[part] + place - self._starts[part]


def has_escapes(text: str) -> bool:
    """Return whether a character in it may stand for another one."""
    return not text.isascii() or _ESCAPE.search(text) is not None


def _character(found: re.Match[str]) -> str:
    if word := found["word"] or found["blank"]:
        return _CHARACTERS[word]
    code = int(found["number"] or 0) or int(found["percent"] or found["hex"] or found["code"], 16)
    return chr(code)


# What of a run is its worker's alone: lease ids, which open it, and nonces.
#
# A caller with a lease's id and its fencing token can complete the step in the worker's place.
# Stores keep the ids, and a worker gets its own; readers of a run get this presentation of it.
# The token is a counter, and opens nothing by itself.


#: So much of a secret tells two of them apart, and leaves more than enough to guess.
_VISIBLE: Final = 4
_LONG: Final = 16

#: Facts of trace events that are secrets.
_SECRETS: Final = ("leaseId", "nonce")


def masked(secret: str) -> str:
    """Return what people see of a secret: its first letters; nothing of a short one."""
    return f"{secret[:_VISIBLE]}…" if len(secret) >= _LONG else "…"


def masked_run(run: Manifest) -> Manifest:
    """Return the run for readers, without its secrets."""
    lease, last = run.position.lease, run.position.last_settlement
    return replace(
        run,
        position=replace(
            run.position,
            lease=lease and replace(lease, lease_id=masked(lease.lease_id)),
            last_settlement=last and replace(last, lease_id=masked(last.lease_id)),
            dispatch=replace(run.position.dispatch, nonce=masked(run.position.dispatch.nonce)),
        ),
    )


def masked_event(event: TraceEvent) -> TraceEvent:
    """Return the event for readers, without its secrets."""
    facts = event.model_dump(exclude_none=True)
    secrets = {name: masked(str(facts[name])) for name in _SECRETS if name in facts}
    return TraceEvent.model_validate({**facts, **secrets}) if secrets else event
