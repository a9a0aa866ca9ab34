"""Names of secrets, and the places of their values in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from leasehold.domain.secret_shapes import Span

#: So much of a name is looked at.
MAX_NAME_SEARCHED_CHARS: Final = 500

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Words of a name that tell a secret, and what tells one however it is written together.
_SECRET_WORD: Final = re.compile(
    r"\b(?:auth|bearer|cookies?|csrf|jwt|otp|pswd|pwd|secrets?|tokens?|xsrf)\b"
)
_OF_KEYS: Final = (
    "access|account|api|auth|client|encryption|master|private|secret|shared|signing|subscription"
)
_COMPOUND: Final = re.compile(
    r"authorization|credential|passcode|passphrase|passw(?:or)?[dt]|clientsecret"
    rf"|(?:{_OF_KEYS})key|(?:access|api|auth|bearer|csrf|id|refresh|session)token"
)
#: `DB_PASS` has a password, but neither `pass` alone nor the first pass of something.
_PASS: Final = re.compile(r"\w pass\Z")
_NO_PASSWORD: Final = re.compile(
    r"\b(?:by|checks|each|final|first|last|multi|n|next|num|one|second|single|tests|third|two)"
    r" pass\Z"
)
#: What stands in every name that tells a secret; most texts have none of it, and are not searched.
_IN_NAMES: Final = re.compile(
    "auth|bearer|cookie|cred|csrf|jwt|key|otp|pass|pswd|pwd|secret|token|xsrf"
)
_BETWEEN_LETTERS: Final = re.compile("[^a-z]+")
#: With one of these in its name, a number of tokens is a number and no secret.
_COUNTING: Final = re.compile(
    r"\b(?:budget|cached|completion|count|fencing|input|left|length|limit|max|min|number|output"
    r"|prompt|remaining|size|thinking|tokens|total|usage|used)\b"
)

#: What may be said of a name before the sign behind it, and the sign; an arrow alone is one, but
#: `token->kind` is code.
_OF_NAME: Final = r"[ ](?:provided|given|used|is|was|(?:for|of)[ ](?:user[ ])?[\w.@-]{1,60})"
_SIGN: Final = (
    r"(?:(?<=\s)-{1,2}>|-{1,2}>(?=\s)|~>|<-|[→⇒↦]|=>|={1,3}|!={1,2}(?=\s?[\"'])|:{0,2}="
    r"|:(?::(?=[ ]\S)|(?!:\s))(?:[ ]?(?:str|bytes|string|SecretStr)(?:[ ]\|[ ]None)?[ ]=)?)"
)
_NAME: Final = re.compile(
    rf"(?<![\w.-])(?P<name>(?P<option>--?(?=[a-z]))?(?:(?:{_OF_KEYS}) )?[\w.-]++)"
    r"""(?:(?:\\*["']|[*`]{1,3})?(?:\[\d{0,3})?\]?"""
    rf"""(?:{_OF_NAME})?\s{{0,3}}{_SIGN}[*`]{{0,3}}"""
    r"""\s{0,3}(?:\s{1,80}(?=\\*["']))?"""
    r"""|(?P<pair>\\*["'],\s?(?=b?\\*["']))|(?P<call>\(\s?(?=b?\\*["']))"""
    r"""|(?(option)\s{1,3}|(?!)))""",  # an option of a command, whose value follows it
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    r"""[bfru]?(?P<triple>\"\"\"|''').*?(?:(?P=triple)|\Z)"""
    r"""|b?"(?:[^"\\]|\\.)*+(?:"|\Z)"""  # quoted; to the end if unclosed
    r"""|b?'(?:[^'\\]|\\.)*+(?:'|\Z)"""
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
#: What stands before the name in `("x-api-key", "…")`, which "one of 'password', 'code'" is not.
_IN_PAIR: Final = re.compile(r"""[\[(]b?\\?["']\Z""")
#: `password(` and `.setPassword(`, but not what names a class: the words of a `TokenExpired("…")`
#: are about it.
_METHOD: Final = re.compile(r"(?:\A|(?<=\.))[a-z_]\w*\Z")
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
#: A tag and what stands in it.
_TAG: Final = re.compile(
    r"<(?P<name>[\w.:-]{1,80})(?:\s[^<>]{0,200})?>\s{0,3}(?:<!\[CDATA\[)?(?P<text>[^<>]+)"
    r"(?:\]\]>)?</"
)
#: `<string name="password">…`, and `<key>password</key> <string>…`.
_NAMED_TAG: Final = re.compile(
    r"""\s(?:name|key|id)=["'](?P<name>[\w.:-]{1,80})["'][^<>]{0,200}>(?P<text>[^<>\s][^<>]*)</"""
)
_NEXT_TAG: Final = re.compile(
    r">\s{0,3}(?P<name>[\w.: -]{1,80}?)\s{0,3}</[\w:-]{1,80}>\s{0,80}"
    r"<[\w:-]{1,80}(?:\s[^<>]{0,200})?>(?P<text>[^<>]+)</"
)
#: A line of a table of two columns, and no header of one: dashes stand below that.
_ROW: Final = re.compile(
    r"^[|]?[ ]{0,60}(?P<name>[\w.-]{1,80})[ ]{0,60}[|][ ]{0,60}(?P<text>[^|\s][^|\n]*+)"
    r"(?:[|][ ]{0,60})?$(?!\n[ |+:-]{3,200}(?:\n|\Z))",
    re.MULTILINE,
)
#: What sets a variable, whose value stands behind a space.
_SETS: Final = re.compile(
    r"(?:^|(?<=[\s:;&\]]))(?:ENV|[Ss]et[Ee]nv|setx|set[ ]-[A-Za-z]{1,3}"
    r"|(?:aws|gcloud|git|npm|pip|poetry|yarn)[ ]config(?:ure)?(?:[ ]--[\w-]{1,20})?(?:[ ]set)?)"
    r"[ ]{1,3}(?P<name>[\w.:/-]{1,100})[ ]{1,3}(?P<text>\"[^\"\n]+|'[^'\n]+|[^\s=\"'][^\s]*)",
    re.MULTILINE,
)
#: A line of YAML whose value stands in the deeper lines below it.
_BLOCK: Final = re.compile(
    r"^(?P<indent>[ ]{0,60})(?:- )?[\"']?(?P<name>[\w.-]{1,100})[\"']?:[ ]{0,3}"
    r"[|>][+-]?\d?[ ]{0,3}\n"
    r"(?P<text>(?:(?P=indent)[ ]+[^\n]*(?:\n|\Z)|[ ]*\n)+)",
    re.MULTILINE,
)
#: What a text has to have in it before these are looked for.
_FORMS: Final = (
    *(("value", form) for form in (_TITLED, _TITLED_AFTER)),
    ("name=", _PART),
    *(("</", form) for form in (_TAG, _NAMED_TAG, _NEXT_TAG)),
    ("|", _ROW),
    (" ", _SETS),
    ("\n", _BLOCK),
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
    words = [word.lower() for word in _WORD.findall(name[:MAX_NAME_SEARCHED_CHARS])]
    phrase = " ".join(words)
    if _COUNTING.search(phrase) and _is_number(value):
        return False
    is_pass = _PASS.search(phrase) and not _NO_PASSWORD.search(phrase)
    return bool(is_pass or _SECRET_WORD.search(phrase) or _COMPOUND.search("".join(words)))


def may_name(text: str) -> bool:
    """Return whether some name may stand in the text that tells a secret."""
    return _IN_NAMES.search(_BETWEEN_LETTERS.sub("", text.lower())) is not None


def block_below(line: str) -> int | None:
    """Return how deep a line of YAML is in whose deeper lines, below it, a secret stands."""
    found = _BLOCK.fullmatch(f"{line}\n{_DEEP}-")
    return len(found["indent"]) if found and hides(found["name"], "") else None


def spans_by_name(text: str) -> Iterator[Span]:
    """Yield where a secret stands in the text that its name gives away."""
    small = text.lower()
    for mark, form in _FORMS:
        if mark not in small:
            continue
        for titled in form.finditer(text):
            groups = titled.groupdict()
            if hides(groups["name"] or groups.get("bare_name") or "", ""):
                group = next(group for group in _SECRETS if groups.get(group))
                if not _SENTENCE.match(text, titled.start(group)):
                    yield titled.span(group)
    place = 0
    while found := _NAME.search(text, place):
        place = found.end()
        if _names_a_value(text, found) and (span := _secret_at(text, found)):
            yield span
            place = max(
                place, span[1] - MAX_NAME_SEARCHED_CHARS
            )  # a name at its end may hide what follows it


def _names_a_value(text: str, found: re.Match[str]) -> bool:
    """Return whether a secret may follow, by the name and the text between the two."""
    name = found["name"]
    if found["pair"] and not found["option"]:
        before = max(0, found.start() - 4)
        if not _IN_PAIR.search(text, before, found.start()):
            return False
    if found["call"]:
        method = _METHOD.search(name)
        return method is not None and hides(method[0], "")
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


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value.replace(",", "").replace(".", "").replace("_", "").isdecimal()
    return isinstance(value, int | float)
