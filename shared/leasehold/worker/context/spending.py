"""Spend within a recorded call (`ctx.once`): it is kept with the call's result."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

from leasehold.domain.spend import NOTHING, Spend


class SpentInCall:
    """What a call that is being made has spent so far; any thread or task of it may add."""

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self._spend = NOTHING
        self._is_over = False

    @property
    def spend(self) -> Spend:
        """The amount to be recorded with its result."""
        return self._spend

    def add(self, spend: Spend) -> bool:
        """Add an amount; False: the call is over, and its result recorded without it."""
        with self._adding:
            if not self._is_over:
                self._spend = self._spend.plus(spend)
            return not self._is_over

    def close(self) -> None:
        """Take no further amount: a task that the call left behind spends on its own."""
        with self._adding:
            self._is_over = True


_CALL: Final[ContextVar[SpentInCall | None]] = ContextVar("leasehold_call", default=None)


@contextlib.contextmanager
def collecting(note: Callable[[Spend], object]) -> Iterator[SpentInCall]:
    """Collect what is spent inside: in a call that is made, and while its result is recorded.

    Args:
        note: given what was spent where there is no record: the call, or its record, has raised.
    """
    spent = SpentInCall()
    token = _CALL.set(spent)
    try:
        yield spent
    except BaseException:
        spent.close()
        if not spent.spend.is_nothing:
            note(spent.spend)
        raise
    finally:
        spent.close()
        _CALL.reset(token)


def add_to_call(spend: Spend) -> bool:
    """Add an amount to the call that is being made here; False: none is."""
    call = _CALL.get()
    return call is not None and call.add(spend)
