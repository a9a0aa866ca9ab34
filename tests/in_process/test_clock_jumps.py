"""The clock of a machine jumps while servers work: nothing is given up or done twice for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.services.audit import audit
from leasehold.services.claim_step import acquire_run
from leasehold.testing import InProcessEngine
from tests.in_process.sample import CALLS, GO_ON, PIPELINES, STEPS
from tests.waiting import until

HOUR = timedelta(hours=1)


class Jumping(SystemClock):
    """The machine's clock, as far off as a test says."""

    off = timedelta()

    def now(self) -> Any:
        return super().now() + self.off


@dataclass
class Machine:
    """Two servers, and a command beside them on the same store; all go by one clock."""

    clock: Jumping
    server: InProcessEngine
    other: InProcessEngine
    beside: InProcessEngine

    def jump(self, off: timedelta) -> None:
        """Set the clock for long enough that each process has read it; wait for a look."""
        self.clock.off = off
        for each in (self.server, self.other, self.beside):
            each.engine.clock_step()
        told = self.beside.start("three", {"n": 1}).run_id  # nobody takes it but a look
        until(lambda: self.server.show(told).status == "COMPLETED")


@pytest.fixture
def machine(environ: dict[str, str]) -> Iterator[Machine]:
    clock, often = Jumping(), {**environ, "PIPELINE_DISPATCH_GRACE_S": "0.2"}
    with (
        InProcessEngine(STEPS, PIPELINES, environ=often, clock=clock, workers=8) as server,
        InProcessEngine(STEPS, PIPELINES, environ=often, clock=clock, workers=8) as other,
        InProcessEngine(STEPS, PIPELINES, environ=often, clock=clock, workers=0) as beside,
    ):
        server.look_after_every_run(tick_s=0.1)
        other.look_after_every_run(tick_s=0.1)
        yield Machine(clock, server, other, beside)


@pytest.mark.parametrize(
    "offs",
    [
        pytest.param((HOUR,), id="ahead"),
        pytest.param((-HOUR,), id="back"),
        pytest.param((HOUR, timedelta()), id="ahead and back"),
        pytest.param((-HOUR, timedelta()), id="back and ahead"),
        pytest.param((HOUR, -HOUR, HOUR, timedelta()), id="to and fro"),
    ],
)
def test_what_runs_failed_or_waits_is_not_given_up(
    machine: Machine,
    holding: Callable[[InProcessEngine], Any],
    offs: tuple[timedelta, ...],
) -> None:
    """The recovery window and the time in which a remote step is to be claimed are an hour each."""
    server = machine.server
    failed = server.start("recovers", {"n": 1}).run_id
    until(lambda: server.show(failed).status == "ERROR")
    remote = server.start("away", {"n": 1}).run_id
    until(lambda: server.show(remote).claimable)
    held = holding(server).run_id

    for off in offs:
        machine.jump(off)
        assert not any(server.show(run_id).dead_lettered for run_id in (failed, remote, held))
        until(lambda: not list(audit(server.engine)))
    GO_ON[held].set()

    assert acquire_run(server.engine, remote, "vm-1").manifest.lease is not None
    for run_id in (held, failed):
        assert server.wait(run_id, 60).status == "COMPLETED"
    assert server.show(failed).steps["fail_twice"].attempts.failed == 2
    attempts = server.show(held).attempts
    assert (CALLS[held, "hold"], attempts.expired, attempts.failed) == (1, 0, 0)
