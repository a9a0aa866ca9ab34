"""Looks, each made in its own thread: one that hangs is left behind, and said so."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import FrameType
from typing import Final

from leasehold.bounded_calls import start_call
from leasehold.doctor.finding import Finding
from leasehold.domain.printable import one_line
from leasehold.errors import without_user
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock

#: So long each look on this machine may take, and the import of the user's code.
LOCAL_TIMEOUT_S: Final = 10.0
_MAX_WORDS_CHARS: Final = 300
#: A module that takes an interrupt for a failure, and tries again, is interrupted so often.
_INTERRUPT_EVERY_S: Final = 0.5
#: Stands between what was to be looked at and why it was not.
_COULD_NOT: Final = " could not be looked at: "


@dataclass(frozen=True, slots=True)
class Look:
    """One group of looks.

    Args:
        what: what is looked at, for the line that says that it could not be.
        find: yields what is wrong.
        explain: a finding for an error that `find` raises; None: there is no better one.
    """

    what: str
    find: Callable[[], Iterable[Finding]]
    explain: Callable[[str, Exception], Finding | None] = lambda _what, _error: None


def examine(looks: Sequence[Look], clock: Clock, within_s: float) -> list[Finding]:
    """Make all looks at once and return what they found, in their order.

    Args:
        looks: what is to be looked at.
        clock: measures how long that takes.
        within_s: seconds after which those that are not over are left behind.
    """
    until = clock.monotonic() + within_s
    begun = [(look, _Collected(look)) for look in looks]
    found: list[Finding] = []
    for look, collected in begun:
        is_over = collected.wait(max(0.0, until - clock.monotonic()))
        found += collected.findings
        if not is_over:
            found.append(not_looked_at(look.what, f"no answer within {within_s:g} s"))
    return _merged(found)


def _merged(found: list[Finding]) -> list[Finding]:
    """Return each finding once, and those of looks that the same thing kept from looking as one."""
    kept_from: dict[tuple[str, str], list[str]] = {}
    for finding in found:
        what, is_it, why = finding.message.partition(_COULD_NOT)
        if is_it:
            kept_from.setdefault((why, finding.repair), []).append(what)
    others = [one for one in dict.fromkeys(found) if _COULD_NOT not in one.message]
    return others + [
        Finding("not_looked_at", f"{_listed(names)}{_COULD_NOT}{why}", repair)
        for (why, repair), names in kept_from.items()
    ]


def _listed(names: list[str]) -> str:
    first, *others = names
    return ", ".join([first, *(f"{name[0].lower()}{name[1:]}" for name in others)])


class _Collected:
    """What a look found so far: one that hangs keeps back nothing that it has found before."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._found: list[Finding] = []
        self._call: Future[None] | None = start_call(self._collect, "look")
        if self._call is None:
            self._found.append(not_looked_at(look.what, "the system has no thread for it"))

    def wait(self, seconds: float) -> bool:
        """Return whether it is over."""
        if self._call is None:
            return True
        with contextlib.suppress(TimeoutError):
            self._call.exception(seconds)
        return self._call.done()

    @property
    def findings(self) -> list[Finding]:
        return [*self._found]

    def _collect(self) -> None:
        look = self._look
        try:
            for finding in look.find():
                self._found.append(finding)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other looks go on
            self._found.append(look.explain(look.what, error) or _failed(look, error))
        except BaseException as error:  # noqa: BLE001 - such as a SystemExit of the user's code
            self._found.append(_failed(look, error))


def _failed(look: Look, error: BaseException) -> Finding:
    return not_looked_at(look.what, f"{type(error).__name__}: {error}")


def not_looked_at(what: str, problem: str, repair: str = "") -> Finding:
    """Return the finding that something could not be looked at: who knows nothing says so."""
    why = one_line(without_user(problem), _MAX_WORDS_CHARS).rstrip(".")
    return Finding("not_looked_at", f"{what[:1].upper()}{what[1:]}{_COULD_NOT}{why}.", repair)


class TooLongError(KeyboardInterrupt):
    """Something in the main thread takes too long: an interrupt, which no module's import keeps."""


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt what is done inside when it takes longer; in the main thread alone.

    The user's modules are imported there, as they may set signal their own handlers.

    Raises:
        TooLongError: it did.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    kept = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _INTERRUPT_EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)
