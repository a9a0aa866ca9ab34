"""A setting, and the texts that it may have: each function gives a value, or raises ValueError."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from leasehold.domain.status import DeadLetterReason
from leasehold.frozen import dataclass

_Value = TypeVar("_Value")

_LAST_PORT: Final = 65_535
_MAX_VALUE_SHOWN_CHARS: Final = 100

#: No query and no fragment, which paths could not follow; no name and password, as people read it.
_PUBLIC_URL: Final = re.compile(r"https?://[^\s?#@]+")

#: Callers are all that IAM lets in: Cloud Run has asked it, before a function is called.
IAM: Final = "iam"
#: As a token has it: `user:` and the like belong to IAM, and would match no account. The signs that
#: separate accounts and rights are not part of one, or a slip would name an unknown account.
_EMAIL: Final = re.compile(
    r"(?!(?i:user|group|domain|serviceAccount):)[\w.!#$%&'+/:?^`{}~-]+@[\w.-]+", re.ASCII
)
#: In place of an email: every caller that is not named.
ANYBODY: Final = "*"
#: What LEASEHOLD_RIGHTS has by default.
ANY_PROGRAM: Final = "*=read+change+cancel"
#: An account of a proxy may be any name: not only an email.
_NAME: Final = re.compile(r"[\w.!#$%&'/:?^`{}~\\-]+", re.ASCII)
_SECRET: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{16,4096}")
#: While a secret is changed, there is the one before.
_MAX_SECRETS: Final = 2
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
#: Headers that browsers and programs send themselves, or that say something else here.
_NOT_IDENTITY: Final = frozenset(
    {
        *("authorization", "connection", "content-length", "content-type", "cookie", "host"),
        *("origin", "referer", "transfer-encoding", "user-agent", "x-leasehold-actor"),
    }
)
#: What is shown in place of a secret.
NOT_SHOWN: Final = "[not shown]"
_LEVELS: Final = frozenset({"DEBUG", "INFO", "WARNING", "ERROR"})
_LOGGER: Final = re.compile(r"[^\s.=,]+(?:\.[^\s.=,]+)*")
_AUDIENCE: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """One variable.

    Args:
        name: the variable.
        default: what holds where it is not set.
        allowed: the values it may have, in words.
        meaning: what it does, in words.
        read: gives the value of a text; raises ValueError for one that is not allowed.
        sets: the argument that has its value, as `Rules.grace`: see `arguments_of`. Empty: who
            needs it takes it by its name.
        decides: for which reasons it decides that a run is given up.
        file_key: its key in the file of LEASEHOLD_CONFIG; empty: `settings.NAME`.
        is_secret: its value is shown nowhere, and does not stand in that file.
    """

    name: str
    default: str
    allowed: str
    meaning: str
    read: Callable[[str], Any]
    sets: str = ""
    decides: tuple[DeadLetterReason, ...] = ()
    file_key: str = ""
    is_secret: bool = False

    @property
    def is_threshold(self) -> bool:
        """Whether a value that is not allowed is reported, and the default holds.

        A slip in a threshold must not keep runs from moving.
        """
        return bool(self.decides)

    def as_refused(self, text: str) -> str:
        """Return a value as a line shows that refuses it."""
        return NOT_SHOWN if self.is_secret else as_refused(text)

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name


class Right(StrEnum):
    """A right of a caller of the APIs."""

    READ = "read"
    CHANGE = "change"
    CANCEL = "cancel"


#: What a person may do on the pages of a server, and by its calls: one word for several rights.
ROLES: Final[Mapping[str, frozenset[Right]]] = {
    "viewer": frozenset({Right.READ}),
    "operator": frozenset(Right),
}


def as_refused(text: str) -> str:
    """Return a value as a line shows that refuses it: no more of it than tells which it is."""
    return repr(
        text if len(text) <= _MAX_VALUE_SHOWN_CHARS else f"{text[:_MAX_VALUE_SHOWN_CHARS]}…"
    )


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a whole number from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()):  # int() takes 1_0 and other digits as well
            raise ValueError(text)
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Return what reads a number from `least` to `most`."""

    def read(text: str) -> float:
        if not text.isascii() or "_" in text:  # as for a whole number
            raise ValueError(text)
        value = float(text)
        if not least <= value <= most:  # nor a NaN
            raise ValueError(text)
        return value

    return read


def one_of(*words: str) -> Callable[[str], str]:
    """Return what reads one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


#: Durations come from the ledger of the runs; any other source is the address of a server.
FROM_LEDGER: Final = "ledger"
_METRIC: Final = re.compile(r"metric:([A-Za-z_:][\w.:]{0,199})", re.ASCII)


def metrics_source(text: str) -> str:
    """Return where the durations of attempts come from."""
    if text == FROM_LEDGER:
        return text
    if not _PUBLIC_URL.fullmatch(text):
        raise ValueError(text)
    return web_address(text).rstrip("/")


def metric_name(text: str) -> str:
    """Return the name of a metric."""
    found = _METRIC.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return found[1]


def times(unit: timedelta, read: Callable[[str], float]) -> Callable[[str], timedelta]:
    """Return what reads how often a time is a unit, such as a day."""
    return lambda text: read(text) * unit


def seconds_up_to(most: float) -> Callable[[str], timedelta]:
    """Return what reads seconds above 0, at most `most`."""

    def read(text: str) -> timedelta:
        value = float(text)
        if not 0 < value <= most:  # nor a NaN
            raise ValueError(text)
        time = timedelta(seconds=value)
        if not time:  # of less than half a microsecond nothing is left, and 0 may mean no limit
            raise ValueError(text)
        return time

    return read


def address(*schemes: str) -> Callable[[str], str]:
    """Return what reads an address that begins with one of the schemes."""

    def read(text: str) -> str:
        if text in schemes or not text.startswith(schemes):
            raise ValueError(text)
        return text

    return read


def web_address(text: str) -> str:
    """Return an address of HTTP: one that can be called, as far as it can be seen."""
    parts = urlsplit(address("http://", "https://")(text))  # raises for brackets without an end
    if parts.hostname is None or parts.port == 0 or not text.isprintable() or " " in text:
        raise ValueError(text)
    return text


def store_address(text: str) -> str:
    """Return the address of a store.

    SQLite takes `:memory:` for a database of each connection's own: runs would be lost.
    """
    if ":memory:" in text:
        raise ValueError(text)
    return (
        pair("firestore://")(text) if text.startswith("firestore:") else address("sqlite:///")(text)
    )


#: The queue and the bus within a process; any other is a service's.
IN_PROCESS: Final = "in-process"


def tasks_address(text: str) -> str:
    """Return the address of a task queue."""
    return text if text == IN_PROCESS else pair("cloud-tasks://")(text)


def events_address(text: str) -> str:
    """Return the address of an event bus."""
    if text == IN_PROCESS or _is_own_server(text):
        return text
    return pair("pubsub://")(text)


def _is_own_server(text: str) -> bool:
    """Return whether it is a server of this machine, which has no sign-in."""
    port = text.removeprefix("http://127.0.0.1:")
    return port != text and whole(1, _LAST_PORT)(port) > 0


def is_loopback(host: str) -> bool:
    """Return whether a host, by its name or its address, is this machine."""
    return host == "localhost" or is_loopback_address(host)


@functools.lru_cache(maxsize=128)  # each request asks for the few peers that a server has
def is_loopback_address(text: str) -> bool:
    """Return whether a text is an address of this machine, also one of IPv4 as IPv6 has it."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def public_url(text: str) -> str:
    """Return an address that people open, without its last slash."""
    if text and not _PUBLIC_URL.fullmatch(web_address(text)):
        raise ValueError(text)
    return text.rstrip("/")


def callers(text: str) -> tuple[str, ...]:
    """Return the emails of accounts, or `iam` alone; nothing: none."""
    return (IAM,) if text == IAM else _list(text, _EMAIL)


def rights(text: str) -> Mapping[str, frozenset[Right]] | None:
    """Return what each account may do, by its email or `*`.

    None, as by default: every program may do everything, and no person has a role on pages.
    """
    if text == ANY_PROGRAM:
        return None
    found: dict[str, frozenset[Right]] = {}
    for part in text.split(","):
        account, is_named, words = part.strip().rpartition("=")
        is_account = account == ANYBODY or is_email(account) or _NAME.fullmatch(account)
        if not is_named or not is_account or account in found:
            raise ValueError(text)
        found[account] = ROLES.get(words) or frozenset(map(Right, words.split("+")))
    return found


def is_email(account: str) -> bool:
    """Return whether an account is named by its email, as tokens of Google's name it."""
    return _EMAIL.fullmatch(account) is not None


def secrets(text: str) -> tuple[str, ...]:
    """Return the secrets that callers may send, the one that is sent first; nothing: none."""
    found = _list(text, _SECRET)
    if len(found) > _MAX_SECRETS:
        raise ValueError(text)
    return found


def own_tasks(text: str) -> frozenset[str]:
    """Return the steps whose attempts have their own tasks, by type or queue; all: every step."""
    return frozenset(_list(text, _NAME_OF_STEP))


def identity_header(text: str) -> str:
    """Return the name of a header that a proxy sets; nothing: there is none."""
    if text and (not _HEADER.fullmatch(text) or text.lower() in _NOT_IDENTITY):
        raise ValueError(text)
    return text


def audiences(text: str) -> tuple[str, ...]:
    """Return the audiences of tokens; nothing: none."""
    return _list(text, _AUDIENCE)


_NAME_OF_STEP: Final = re.compile(r"[a-zA-Z0-9_-]{1,100}")


def _list(text: str, form: re.Pattern[str]) -> tuple[str, ...]:
    """Return what stands between commas, each of this form."""
    values = tuple(value.strip() for value in text.split(",")) if text else ()
    if not all(map(form.fullmatch, values)):
        raise ValueError(text)
    return values


def log_levels(text: str) -> dict[str, str]:
    """Return the level of each logger that has one of its own; "" is that of all others."""
    levels = {"": "INFO"}
    for part in text.split(","):
        logger, is_named, level = part.strip().rpartition("=")
        name = logger.strip()
        if level.strip().upper() not in _LEVELS or (is_named and not _LOGGER.fullmatch(name)):
            raise ValueError(text)
        levels[name] = level.strip().upper()
    return levels


def pair(scheme: str) -> Callable[[str], str]:
    """Return what reads two names behind a scheme: `cloud-tasks://PROJECT/LOCATION`."""

    def read(text: str) -> str:
        names = text.removeprefix(scheme).split("/")
        if not text.startswith(scheme) or len(names) != 2 or not all(names):  # noqa: PLR2004
            raise ValueError(text)
        return text

    return read


def maybe(read: Callable[[str], _Value]) -> Callable[[str], _Value | None]:
    """Allow a setting to be unset."""
    return lambda text: read(text) if text else None


def yes_or_no(text: str) -> bool:
    """Return whether it is yes."""
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"
