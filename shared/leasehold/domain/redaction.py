"""Secrets are cut out of what is kept of an error: out of values by their names, out of texts.

Too much is cut rather than too little. What stays as it is: what merely counts tokens, what is
absent, and what is only true or false.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Any, Final

import pydantic_core

from leasehold.domain.secret_shapes import Span, shapes

REDACTED: Final = "[redacted]"

#: How many characters of a text, or of all values together, are looked at; the rest is dropped.
MAX_LOOKED_AT: Final = 20_000
_MAX_DEPTH: Final = 30
_MAX_WORD: Final = 500
_MAX_BITS: Final = 64
_MORE: Final = "…"

#: A secret that was seen is looked for elsewhere; a shorter one could be part of any word.
_SHORTEST_KNOWN: Final = 6
_MAX_KEY_LINES: Final = 60
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
#: `DB_PASS` has a password, but neither `pass` alone nor the first pass of something.
_PASS: Final = re.compile(r"\w pass\Z")
_NO_PASSWORD: Final = re.compile(
    r"\b(?:by|checks|each|final|first|last|multi|n|next|num|one|second|single|tests|third|two)"
    r" pass\Z"
)
#: What stands in every name that tells a secret; most texts have none of it, and are not searched.
_IN_NAMES: Final = re.compile("auth|bearer|cookie|cred|csrf|jwt|key|otp|pass|pwd|secret|token|xsrf")
_BETWEEN_LETTERS: Final = re.compile("[^a-z]+")
#: With one of these in its name, a number of tokens is a number and no secret.
_COUNTING: Final = re.compile(
    r"\b(?:budget|cached|completion|count|fencing|input|left|length|limit|max|min|number|output"
    r"|prompt|remaining|size|thinking|tokens|total|usage|used)\b"
)

_NAME: Final = re.compile(
    rf"(?<![\w.-])(?P<name>(?:(?:{_OF_KEYS}) )?[\w.-]++)"
    r"""(?:(?:\\*["'])?\]?(?:[ ](?:provided|given|used|is|was))?\s{0,3}(?:=>|:=|[:=])"""
    r"""\s{0,3}(?:\s{1,80}(?=\\*["']))?"""
    r"""|(?P<pair>\\*["'],\s?(?=b?\\*["']))|(?P<space>[ ]{1,3}))""",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    r"""b?"(?:[^"\\]|\\.)*+(?:"|\Z)|b?'(?:[^'\\]|\\.)*+(?:'|\Z)"""  # quoted; to the end if unclosed
    r"""|(?P<quote>\\+["']).*?(?:(?<!\\)(?P=quote)|\Z)"""  # quoted within what is quoted
    r"|(?P<open>[\[{(])"  # as far as its brackets close
    r"|(?:(?:basic|bearer|digest|negotiate|token)\s{1,3})?[^\s&]+",
    re.IGNORECASE | re.DOTALL,
)
#: What opens and closes, and what is quoted: brackets within that count for nothing.
_BRACKET: Final = re.compile(
    r"""(?P<open>[\[{(])|[\])}]|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", re.DOTALL
)
#: The rest of a text that Python shows in several lines.
_NEXT_PART: Final = re.compile(r"""[ ]?\n[ ]{1,100}(?:'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")""")
_TO_ITS_END: Final = re.compile(r"[^\s,;&]*")
_USER_OPTION: Final = re.compile(r"-[A-Za-z]{0,6}[uU]|--(?:proxy-)?user")
#: What stands before the name in `("x-api-key", "…")`, which "one of 'password', 'code'" is not.
_IN_PAIR: Final = re.compile(r"""[\[(]b?\\?["']\Z""")
_HEADER: Final = re.compile("authorization|cookie", re.IGNORECASE)
#: What is cut behind a header's name: a cookie's whole line, but of an authorization its scheme
#: and credential alone, or its parameters; not the words that a log puts behind them.
_OF_HEADER: Final = {
    "cookie": re.compile(r"[^\r\n]+"),
    "authorization": re.compile(
        r"(?:(?:[a-z][a-z-]{1,30}|aws4-hmac-sha256)[ \t]{1,3}(?=\S))?"
        r"(?:[\w-]++=(?:\"[^\"\r\n]*+\"?|[^\s,\"=][^\s,\"]*+)(?:,\s{0,3}(?=[\w-]++=))?)++"
        r"|(?:[a-z][a-z-]{1,30}[ \t]{1,3}(?=\S))?[^\s&]+"
        r"(?:[ ]{1,3}[\w+/-]{2,}={1,2}(?![\w=]))?",  # the rest of one that was broken in two
        re.IGNORECASE,
    ),
}
#: What names a value in `{"name": …, "value": …}`.
_TITLES: Final = ("name", "key", "header", "field")
_TITLE: Final = (
    r"""(?<![\w-])(?:name|key|header|field)\\?["']?\s{0,3}[:=]\s{0,3}"""
    r"""(?:\\?["'](?P<name>[^"'\\\n]{1,100})\\?["']|(?P<bare_name>[\w.-]{1,100}))"""
)
_TITLE_S_VALUE: Final = (
    r"""(?<![\w-])value\\?["']?\s{0,3}[:=]\s{0,3}"""
    r"""\\?(?:"(?P<double>[^"\\]{1,2000}+)|'(?P<single>[^'\\]{1,2000}+)|(?P<bare>[^\s"',;&(){}\[\]<>]{1,400}+))"""
)
#: The same as JSON, as YAML, and as attributes of a tag; on one line or, indented, on the next.
_TITLED: Final = re.compile(
    rf"""{_TITLE}\s{{0,3}},?\s{{0,80}}\\?["']?{_TITLE_S_VALUE}""", re.IGNORECASE
)
_TITLED_AFTER: Final = re.compile(
    rf"""{_TITLE_S_VALUE}\\?["']?\s{{0,3}},?\s{{0,80}}\\?["']?{_TITLE}""", re.IGNORECASE
)
#: A field of a form that is sent in parts: its name stands in the head of its part.
_PART: Final = re.compile(
    r"""\bname="(?P<name>[^"\r\n]{1,100})"[^\r\n]{0,200}\r?\n(?:[^\r\n]{1,200}\r?\n){0,4}\r?\n"""
    r"""(?P<text>[^\r\n]+)""",
    re.IGNORECASE,
)
#: A tag and what stands in it; a line of YAML whose value stands in the deeper lines below it.
_TAG: Final = re.compile(r"<(?P<name>[\w.:-]{1,80})(?:\s[^<>]{0,200})?>(?P<text>[^<>]+)</")
_BLOCK: Final = re.compile(
    r"^(?P<indent>[ ]{0,60})(?:- )?[\"']?(?P<name>[\w.-]{1,100})[\"']?:[ ]{0,3}"
    r"[|>][+-]?\d?[ ]{0,3}\n"
    r"(?P<text>(?:(?P=indent)[ ]+[^\n]*(?:\n|\Z)|[ ]*\n)+)",
    re.MULTILINE,
)
#: The group of those that is the secret.
_SECRETS: Final = ("double", "single", "bare", "text")
_DEEP: Final = " " * 61  # than any line above it
_CLOSING: Final = ")]},;.'\"\\"

#: What follows a name in a sentence about it: "password: must be set".
_SENTENCE: Final = re.compile(
    r"(?:an?|are|can|cannot|could|denied|does|expected|expired|failed|false|field|has|input|invalid"
    r"|is|may|missing|must|no|none|not|null|required|should|the|too|true|value|was)(?=[\s.,;)}\]]|\Z)",
    re.IGNORECASE,
)


def hides(name: str, value: Any) -> bool:
    """Return whether a value of this name is a secret."""
    if value is None or isinstance(value, bool):
        return False
    words = [word.lower() for word in _WORD.findall(name[:_MAX_WORD])]
    phrase = " ".join(words)
    if _COUNTING.search(phrase) and _is_number(value):
        return False
    is_pass = _PASS.search(phrase) and not _NO_PASSWORD.search(phrase)
    return bool(is_pass or _SECRET_WORD.search(phrase) or _COMPOUND.search("".join(words)))


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
        return self.without(looked_at, [*shapes(looked_at), *spans_by_name(looked_at)]) + more

    def without(self, text: str, secrets: Iterable[Span]) -> str:
        """Return the text without the secrets at these places, and without those that are known."""
        parts, place = [], 0
        for start, end in sorted([*secrets, *self._places(text)]):
            if start >= place:
                parts += [text[place:start], REDACTED]
            place = max(place, end)
        return "".join([*parts, text[place:]])

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
                safe: Any = value
            case int():
                safe = value if value.bit_length() < _MAX_BITS else hex(value)[:_MAX_WORD]
            case str():
                safe = self._some(str(value))
            case bytes() | bytearray():
                safe = self._some(bytes(value[: 4 * MAX_LOOKED_AT]).decode(errors="replace"))
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

    A private key is known by its first line, a block of YAML by the line that it stands below, and
    a value by the name on the line before.
    """

    def __init__(self) -> None:
        self._before = ""
        self._key_lines = 0  # how many more may be of a private key
        self._indent: int | None = None  # of the line that a block stands below

    def line(self, text: str) -> str:
        """Return the line without what those before tell of it."""
        before, self._before = self._before, text
        if self._is_of_key(text) or self._is_of_block(text):
            return REDACTED
        if not before or not _may_name(before):
            return text
        start = len(before) + 1
        both = f"{before}\n{text}"
        found = [*shapes(both), *spans_by_name(both)]
        spans = [(max(0, begin - start), end - start) for begin, end in found if end > start]
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
        if found := _BLOCK.fullmatch(f"{text}\n{_DEEP}-"):
            self._indent = len(found["indent"]) if hides(found["name"], "") else None
        return False


def _may_name(text: str) -> bool:
    return _IN_NAMES.search(_BETWEEN_LETTERS.sub("", text.lower())) is not None


def spans_by_name(text: str) -> Iterator[Span]:
    """Yield where a secret stands in the text that its name gives away."""
    if not _may_name(text):
        return
    for form in (_TITLED, _TITLED_AFTER, _PART, _TAG, _BLOCK):
        for titled in form.finditer(text):
            groups = titled.groupdict()
            if hides(groups["name"] or groups.get("bare_name") or "", ""):
                yield titled.span(next(group for group in _SECRETS if groups.get(group)))
    place = 0
    while found := _NAME.search(text, place):
        place = found.end()
        if _names_a_value(text, found) and (span := _secret_at(text, found)):
            yield span
            place = max(place, span[1] - _MAX_WORD)  # a name at its end may hide what follows it


def _names_a_value(text: str, found: re.Match[str]) -> bool:
    """Return whether a secret may follow, by the name and by what stands between the two."""
    name = found["name"]
    if not name.startswith("--"):  # an option of a command, whose value follows it
        if found["space"]:
            return False
        before = max(0, found.start() - 4)
        if found["pair"] and not _IN_PAIR.search(text, before, found.start()):
            return False
    return hides(name, "")


def _secret_at(text: str, found: re.Match[str]) -> Span | None:
    """Return where the value is that follows a name, unless it is none."""
    start, name = found.end(), found["name"]
    value = _VALUE.match(text, start)
    if value is None or _SENTENCE.match(text, start):
        return None
    is_quoted = value[0].lstrip("b\\")[:1] in ('"', "'")
    if not is_quoted and (header := _HEADER.search(name)):
        value = _OF_HEADER[header[0].lower()].match(text, start) or value
    end = value.end()
    if value.re is _VALUE and value["open"]:
        end = _end_of_brackets(text, start)
    elif is_quoted:
        while part := _NEXT_PART.match(text, end):
            end = part.end()
    else:
        end = start + len(value[0].rstrip(_CLOSING))
    if end == start or not hides(name, value[0].strip(_CLOSING)):
        return None
    return start, end


def _end_of_brackets(text: str, start: int) -> int:
    """Return where the bracket closes that opens here; the end of the text if it never does."""
    depth = 0
    for found in _BRACKET.finditer(text, start):
        if found[0] in ("]", "}", ")"):
            depth -= 1
        elif found["open"]:
            depth += 1
        if depth == 0:
            rest = _TO_ITS_END.match(text, found.end())
            return found.end() if rest is None else found.end() + len(rest[0].rstrip(_CLOSING))
    return len(text)


def _beginning(text: str) -> str:
    """Return as much of the text as is looked at; no word of it is cut in two."""
    if len(text) <= MAX_LOOKED_AT:
        return text
    head = text[:MAX_LOOKED_AT]
    return head[: max(head.rfind(" "), head.rfind("\n"), MAX_LOOKED_AT - _MAX_WORD)]


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


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value.replace(",", "").replace(".", "").replace("_", "").isdecimal()
    return isinstance(value, int | float)
