"""The ports that call code of users: a runner for the handler of a step, one for its gates."""

from __future__ import annotations

from typing import Protocol

from leasehold.domain.manifest import Manifest
from leasehold.domain.result import Finished, Result
from leasehold.ports.lease_keeper import HeldT_contra


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


class HandlerRunner(Protocol[HeldT_contra]):
    """Runs the handlers of one kind of isolation."""

    def run(self, held: HeldT_contra, step: StepHandler, given: str) -> Result:
        """Call the handler with the JSON text `given` and judge what it does; never raises."""
        ...


class GateRunner(Protocol):
    """Runs gates: checks that an output must pass."""

    def run(self, gate: StepHandler, manifest: Manifest, finished: Finished) -> Result:
        """Return the result as it is, or what it comes to where the gate refuses it or fails.

        Raises:
            StoreUnavailableError: the gate met an outage; ask again.
        """
        ...
