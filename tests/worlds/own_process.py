"""A part of a test that changes its process as a program may that has one of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from leasehold.web.engine_provider import SHUTDOWN
from leasehold.worker.stopping.system_signals import ENDING


@contextlib.contextmanager
def own_process() -> Iterator[None]:
    """Take back the variables and the handlers of signals that are changed inside."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    variables = dict(os.environ)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signal, "signal", signal.signal)  # a function wraps it
            patch.setattr(SHUTDOWN, "_listens", False)
            yield
    finally:
        for name in os.environ.keys() - variables:
            del os.environ[name]
        os.environ.update(variables)
        for number, handler in handlers.items():
            signal.signal(number, handler)
