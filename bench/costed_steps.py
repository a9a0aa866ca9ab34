"""Steps that take a minute each by the clock of their engine, and none of the machine's.

Its own module because Python knows the benchmark under two names: as the program, and as the
module that the handlers are in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.clock import SystemClock
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog

#: Seconds that pass while a step runs, beat by beat of its heartbeat; the last one is not due yet.
BEATS_S: Final = (10.0, 10.0, 10.0, 10.0, 10.0, 9.9)


class MovedClock(SystemClock):
    """The machine's clock, whose monotonic time goes on as a step says.

    It begins a day behind, so that it does not overtake that of the store.
    """

    def __init__(self) -> None:
        self._passed = super().monotonic() - 86_400.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += seconds

    def monotonic(self) -> float:
        """Return the seconds that passed."""
        return self._passed


#: Lets so many seconds pass for the attempts of the engine, and renews what is due by then.
PASS: Final[list[Callable[[float], object]]] = []


def work(ctx: StepContext, given: Any) -> Any:  # noqa: ARG001 - a handler's shape
    """Take a minute, or no time where that is given."""
    for seconds in () if given["isShort"] else BEATS_S:
        PASS[-1](seconds)
    return given


_STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="bench.costed_steps:work",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
            isolation="inline",
        )
        for name in ("first", "second", "third")
    ],
)
_PIPELINES: Final = Registry(
    "pipelines", [PipelineEntry(name="minutes", steps=("first", "second", "third"))]
)
SILENT: Final = Catalog(_STEPS, _PIPELINES)
TOLD: Final = Catalog(_STEPS, _PIPELINES, channels=Registry("channels", [LogChannel(name="log")]))
