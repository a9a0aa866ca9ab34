"""The settings of a model and its endpoint, checked before anything is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn
from urllib.parse import urlsplit

from leasehold import PermanentError

KEY: Final = "OPENAI_API_KEY"
URL: Final = "OPENAI_BASE_URL"
MODEL: Final = "REVIEW_MODEL"
TIMEOUT: Final = "REVIEW_MODEL_TIMEOUT_MS"

DEFAULT_URL: Final = "https://api.openai.com/v1"
_LONGEST_TIMEOUT_MS: Final = 1_800_000
_SHORTEST_SECRET: Final = 6  # what is shorter stands for no key, and may be any word


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that speaks OpenAI's chat completions.

    Args:
        key: sent with each request, and shown nowhere.
        url: where `/chat/completions` is added.
        model: its name there.
        answer_s: seconds that one answer may take.
    """

    key: str = field(repr=False)
    url: str
    model: str
    answer_s: float

    @property
    def host(self) -> str:
        """Its host and port, for people."""
        return urlsplit(self.url).netloc

    def hide(self, text: str) -> str:
        """Return the text without the key: some endpoints say in their answers what they got."""
        return text if len(self.key) < _SHORTEST_SECRET else text.replace(self.key, f"[{KEY}]")


def endpoint_of(environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint that the environment names.

    Raises:
        PermanentError: a variable is missing or has a value that cannot be used.
    """
    return Endpoint(
        key=_key(environ.get(KEY, "")),
        url=_url(environ.get(URL) or DEFAULT_URL),
        model=environ.get(MODEL) or _refuse(MODEL, "not set", "the name of a model"),
        answer_s=_seconds(environ.get(TIMEOUT) or "120000"),
    )


def _key(text: str) -> str:
    allowed = "a key in printable ASCII; any word where the endpoint asks for none"
    if not text:
        _refuse(KEY, "not set", allowed)
    if not (text.isascii() and text.isprintable()) or " " in text:
        _refuse(KEY, "not a key", allowed)
    return text


def _url(text: str) -> str:
    allowed = f"http://HOST/PATH or https://…, without user or query; the key stands in {KEY}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        _refuse(URL, "not an address", allowed)
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        _refuse(URL, "not such an address", allowed)
    return text


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _LONGEST_TIMEOUT_MS):
        allowed = f"milliseconds, a whole number up to {_LONGEST_TIMEOUT_MS}"
        _refuse(TIMEOUT, repr(text[:40]), allowed)
    return int(text) / 1000


def _refuse(name: str, problem: str, allowed: str) -> NoReturn:
    raise PermanentError(f"{name} is {problem}; allowed: {allowed}.", code="bad_setting")
