"""The ports that call code of users: a runner for the handler of a step, one for its gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from leasehold.domain.manifest import Manifest
from leasehold.domain.result import Finished, Result

Attempt_contra = TypeVar("Attempt_contra", contravariant=True)


class StepHandler(Protocol):
    """What is called, as far as a runner needs to know it."""

    @property
    def step_type(self) -> str:
        """Its name."""
        ...

    @property
    def handler(self) -> str:
        """The path of its handler: `module:function`."""
        ...


class EnteredStep(StepHandler, Protocol):
    """A step type whose handler is run."""

    @property
    def entry_actions(self) -> Sequence[str]:
        """The paths of the functions that are called before its handler: `module:function`."""
        ...

    @property
    def reuse(self) -> int:
        """How many attempts a process of it may serve, one after the other."""
        ...


class HandlerRunner(Protocol[Attempt_contra]):
    """Runs the handlers of one kind of isolation."""

    def run(self, attempt: Attempt_contra, step: EnteredStep, given: str) -> Result:
        """Call the entry actions and the handler of a step, and judge what they do; never raises.

        Args:
            attempt: the attempt, under its lease.
            step: the step.
            given: what they are given, JSON text.
        """
        ...


class GateRunner(Protocol):
    """Runs gates: checks that an output must pass."""

    def run(self, gate: StepHandler, manifest: Manifest, finished: Finished) -> Result:
        """Return the result as it is, or what it comes to where the gate refuses it or fails.

        Raises:
            StoreUnavailableError: the gate met an outage; ask again.
        """
        ...
