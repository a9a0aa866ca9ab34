"""The parts of an engine that call user code, or look at it: each is imported by its first call.

A function that sweeps, answers or announces has none to call, and a worker has its handlers called
in their own processes.
"""

# ruff: noqa: PLC0415 - as said

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from leasehold.ports.artifacts import Artifacts
from leasehold.ports.handler_checks import HandlerChecks
from leasehold.ports.handler_runner import GateRunner, HandlerRunner
from leasehold.registry.channels import CustomChannel
from leasehold.worker.stopping.interrupts import Interrupts

if TYPE_CHECKING:
    from leasehold.attempt.attempt import Attempt
    from leasehold.domain.kept_checkpoint import Load
    from leasehold.worker.handler.channel_senders import SenderFunction


class _Late:
    """Stands in the place of a part, which is made when a method of it is first used."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._made = functools.cache(make)

    def __getattr__(self, name: str) -> Any:
        method = self.__dict__[name] = getattr(self._made(), name)
        return method


def inline_runner(interrupts: Interrupts) -> HandlerRunner[Attempt]:
    """Return what calls a handler in the worker's own thread."""

    def make() -> object:
        from leasehold.worker.handler.call import InlineRunner

        return InlineRunner(interrupts)

    return cast(HandlerRunner[Any], _Late(make))


def gate_runner(artifacts: Artifacts, load: Load, interrupts: Interrupts) -> GateRunner:
    """Return what calls a gate."""

    def make() -> object:
        from leasehold.worker.handler.gates import InlineGateRunner

        return InlineGateRunner(artifacts, load, interrupts)

    return cast(GateRunner, _Late(make))


def handler_checks() -> HandlerChecks:
    """Return what knows the handlers' models."""

    def make() -> object:
        from leasehold.worker.handler.checks import ImportedHandlerChecks

        return ImportedHandlerChecks()

    return cast(HandlerChecks, _Late(make))


def sender_of(entry: CustomChannel) -> SenderFunction:
    """Return the function of a channel, as `worker/handler/channel_senders.py` finds it."""
    from leasehold.worker.handler import channel_senders

    return channel_senders.sender_of(entry)
