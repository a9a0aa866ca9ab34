"""Secrets are cut out of what is kept of an error: out of values by their names, out of texts.

Too much is cut rather than too little. What stays as it is: what merely counts tokens, what is
absent, and what is only true or false.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pydantic_core

REDACTED: Final = "[redacted]"

#: How many characters of a text, or of all values together, are looked at; the rest is dropped.
MAX_LOOKED_AT: Final = 20_000
_MAX_DEPTH: Final = 30
_MAX_WORD: Final = 500
_MAX_BITS: Final = 64
_MORE: Final = "…"

#: A secret that was seen is looked for elsewhere; a shorter one could be part of any word.
_SHORTEST_KNOWN: Final = 6
_MAX_KNOWN: Final = 50

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Words of a name that tell a secret, and what tells one however it is written together.
_SECRET_WORD: Final = re.compile(
    r"\b(?:auth|bearer|cookies?|csrf|jwt|otp|pwd|secrets?|tokens?|xsrf)\b"
)
_OF_KEYS: Final = (
    "access|account|api|auth|client|encryption|master|private|secret|shared|signing|subscription"
)
_COMPOUND: Final = re.compile(
    r"authorization|credential|passphrase|passw(?:or)?d|clientsecret"
    rf"|(?:{_OF_KEYS})key|(?:access|api|auth|bearer|csrf|id|refresh|session)token"
)
#: With one of these in its name, a number of tokens is a number and no secret.
_COUNTING: Final = re.compile(
    r"\b(?:budget|cached|completion|count|fencing|input|left|length|limit|max|min|number|output"
    r"|prompt|remaining|size|thinking|tokens|total|usage|used)\b"
)

_NAME: Final = re.compile(
    rf"(?<![\w.-])(?P<name>(?:(?:{_OF_KEYS}) )?[\w.-]++)"
    r"""(?:(?:\\*["'])?\]?(?:[ ](?:provided|given|used|is|was))?\s{0,3}(?:=>|:=|[:=])\s{0,3}"""
    r"""|(?P<pair>\\*["'],\s?(?=b?\\*["']))|(?P<space>[ ]{1,3}))""",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    r"""b?"(?:[^"\\]|\\.)*+(?:"|\Z)|b?'(?:[^'\\]|\\.)*+(?:'|\Z)"""  # quoted; to the end if unclosed
    r"""|(?P<quote>\\+["']).*?(?:(?<!\\)(?P=quote)|\Z)"""  # quoted within what is quoted
    r"|[\[{(].*\Z"  # where it ends is not worth the risk
    r"|(?:(?:basic|bearer|digest|negotiate|token)\s{1,3})?[^\s&]+",
    re.IGNORECASE | re.DOTALL,
)
#: What stands before the name in `("x-api-key", "…")`, which "one of 'password', 'code'" is not.
_IN_PAIR: Final = re.compile(r"""[\[(]b?\\?["']\Z""")
_LINE: Final = re.compile(r"[^\r\n]+")
_CLOSING: Final = ")]},;.'\"\\"

#: What follows a name in a sentence about it: "password: must be set".
_SENTENCE: Final = re.compile(
    r"(?:an?|are|can|cannot|could|denied|does|expected|expired|failed|false|field|has|input|invalid"
    r"|is|may|missing|must|no|none|not|null|required|should|the|too|true|value|was)(?=[\s.,;)}\]]|\Z)",
    re.IGNORECASE,
)

#: A word that says that what follows it in quotes, or within a tag, is a secret.
_SAID: Final = r"(?:passw(?:or)?d|passphrase|secret|(?:api|secret)[_ -]?key)"

#: What is known for a secret by how it looks; the group is what is cut.
_LOOKS: Final = (
    re.compile(
        r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----|\Z))",
        re.DOTALL,
    ),
    re.compile(r"(?<![A-Za-z0-9_-])(eyJ[\w-]{5,}(?:\.[\w-]*){0,2})", re.ASCII),
    re.compile(
        r"(?<![A-Za-z0-9])((?:sk-|[rs]k_(?:live|test)_|AIza|ya29\.|gh[opsur]_|github_pat_|glpat-"
        r"|xox[a-z]-|hf_|npm_|pypi-|GOCSPX-|AKIA|ASIA)[\w.-]{7,}[\w-])",
        re.ASCII,
    ),
    re.compile(
        r"\bbearer\s{1,3}(?!(?:auth\w*|credentials?|error|header|realm|scheme|tokens?)\b)"
        r"([\w.~+/=-]{6,})",
        re.ASCII | re.IGNORECASE,
    ),
    re.compile(r"\bbasic\s{1,3}(?=[a-z+/]*[0-9=])([\w+/=]{8,})", re.ASCII | re.IGNORECASE),
    re.compile(r"://[^\s/?#:@]*+:([^\s/?#]+)@"),
    re.compile(r"://([^\s/?#:@]{8,})@"),
    re.compile(rf"<{_SAID}[^<>]*>([^<>]+)</", re.IGNORECASE),
    re.compile(rf"\b{_SAID}\s{{1,3}}[\"']([^\"'\n]+)[\"']", re.IGNORECASE),
    re.compile(
        r"[?&](?:sig|(?:x-(?:amz|goog)-)?(?:signature|credential))=([^\s&\"']+)", re.IGNORECASE
    ),
)

Span = tuple[int, int]


def hides(name: str, value: Any) -> bool:
    """Return whether a value of this name is a secret."""
    if value is None or isinstance(value, bool):
        return False
    words = [word.lower() for word in _WORD.findall(name[:_MAX_WORD])]
    said = " ".join(words)
    if _COUNTING.search(said) and _is_number(value):
        return False
    return bool(_SECRET_WORD.search(said) or _COMPOUND.search("".join(words)))


class Redaction:
    """Cuts the secrets out of one error.

    A secret that a name gave away is cut wherever else it is said, so values come before texts.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._left = 0

    def text(self, text: str) -> str:
        """Return the text without its secrets."""
        looked_at = _beginning(text)
        parts, place = [], 0
        for start, end in sorted([*_spans(looked_at), *self._places(looked_at)]):
            if start >= place:
                parts += [looked_at[place:start], REDACTED]
            place = max(place, end)
        more = _MORE if len(looked_at) < len(text) else ""
        return "".join([*parts, looked_at[place:], more])

    def value(self, value: Any, at_most: int = MAX_LOOKED_AT) -> Any:
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

    def hidden(self, value: Any, depth: int = 0) -> str:
        """Return what stands in the place of a secret, and know the secret from now on."""
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, str):
            if _SHORTEST_KNOWN <= len(value) <= _MAX_WORD and len(self._known) < _MAX_KNOWN:
                self._known.add(value)
        elif depth < _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
            within = value.values() if isinstance(value, Mapping) else value
            for one in islice(within, _MAX_KNOWN):
                self.hidden(one, depth + 1)
        return REDACTED

    def _cut(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            return _MORE
        match value:
            case None | bool() | float():
                shown: Any = value
            case int():
                shown = value if value.bit_length() < _MAX_BITS else hex(value)[:_MAX_WORD]
            case str():
                shown = self._some(str(value))
            case bytes() | bytearray():
                shown = self._some(bytes(value[: 4 * MAX_LOOKED_AT]).decode(errors="replace"))
            case Mapping():
                shown = self._mapping(value, depth)
            case list() | tuple() | set() | frozenset():
                shown = self._sequence(value, depth)
            case _:
                shown = self._cut(_plain(value), depth + 1)
        return shown

    def _some(self, text: str) -> str:
        """Return as much of the text as there is room for; to cut it first could hide a secret."""
        shown = self.text(text)
        room = max(0, self._left)
        self._left -= len(shown)
        return shown if len(shown) <= room else shown[:room] + _MORE

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        titles = [value.get(key) for key in ("name", "key", "header", "field")]
        title = " ".join(one for one in titles if isinstance(one, str))  # {"name": …, "value": …}
        found = {}
        for key, one in islice(value.items(), self._left + 1):
            name = key if isinstance(key, str) else repr(key)
            is_secret = hides(name, one) or (name == "value" and hides(title, one))
            shown = self._cut(name, depth)
            found[shown] = self.hidden(one) if is_secret else self._cut(one, depth + 1)
        return found

    def _sequence(self, value: Collection[Any], depth: int) -> list[Any]:
        some = list(islice(value, self._left + 1))
        if len(some) == 2 and isinstance(name := _named(some[0]), str) and hides(name, some[1]):  # noqa: PLR2004 - a pair
            return [some[0] if isinstance(some[0], str) else name, self.hidden(some[1])]
        return [self._cut(one, depth + 1) for one in some]

    def _places(self, text: str) -> Iterator[Span]:
        for secret in self._known:
            for said in {secret, pydantic_core.to_json(_stored(secret)).decode()[1:-1]}:
                for found in re.finditer(re.escape(said), text):
                    yield found.span()


def _spans(text: str) -> Iterator[Span]:
    for pattern in _LOOKS:
        for found in pattern.finditer(text):
            yield found.span(1)
    for found in _NAME.finditer(text):
        name = found["name"]
        if found["space"] and not name.startswith("--"):  # an option of a command
            continue
        if found["pair"] and not _IN_PAIR.search(text, max(0, found.start() - 4), found.start()):
            continue
        if hides(name, "") and (span := _secret_at(text, found)):
            yield span


def _secret_at(text: str, found: re.Match[str]) -> Span | None:
    """Return where the value is that follows a name, unless it is none."""
    start, name = found.end(), found["name"]
    value = _VALUE.match(text, start)
    if value is None or _SENTENCE.match(text, start):
        return None
    is_quoted = value[0].lstrip("b\\")[:1] in ('"', "'")
    if not is_quoted and re.search("authorization|cookie", name, re.IGNORECASE):
        value = _LINE.match(text, start) or value
    end = start + len(value[0].rstrip(_CLOSING)) if not is_quoted else value.end()
    if end == start or not hides(name, value[0].strip(_CLOSING)):
        return None
    return start, end


def _beginning(text: str) -> str:
    """Return as much of the text as is looked at; no word of it is cut in two."""
    if len(text) <= MAX_LOOKED_AT:
        return text
    head = text[:MAX_LOOKED_AT]
    return head[: max(head.rfind(" "), head.rfind("\n"), MAX_LOOKED_AT - _MAX_WORD)]


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


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value.replace(",", "").replace(".", "").replace("_", "").isdecimal()
    return isinstance(value, int | float)
