"""The clock of a machine jumps while servers work: nothing is given up or done twice for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.lease import fence_of
from leasehold.errors import ChannelUnavailableError
from leasehold.ports.documents import Query
from leasehold.registry.channels import LogChannel
from leasehold.registry.registry import Registry
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, renew_lease
from leasehold.services.audit import audit
from leasehold.testing import FrozenClock, InProcessEngine
from leasehold.testing.in_process import RecordedChannels
from tests.worlds.catalogs.sample import CALLS, GO_ON, PIPELINES, STEPS
from tests.worlds.waiting import until

HOUR = timedelta(hours=1)
CHANNELS = Registry("channels", [LogChannel(name="log")])
#: The waits of what failed are long enough for the clock to jump within them.
SOON = {
    "PIPELINE_DISPATCH_GRACE_S": "0.2",
    "PIPELINE_MIN_BACKOFF_S": "2",
    "PIPELINE_DELIVERY_WAIT_S": "2",
}


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
            each.engine.process.clock_step()
        told = self.beside.start("three", {"n": 1}).run_id  # nobody takes it but a look
        until(lambda: self.server.show(told).status == "COMPLETED")


def opened(environ: dict[str, str], clock: Any, workers: int) -> InProcessEngine:
    return InProcessEngine(
        STEPS, PIPELINES, channels=CHANNELS, environ=environ, clock=clock, workers=workers
    )


@pytest.fixture
def machine(environ: dict[str, str]) -> Iterator[Machine]:
    clock, often = Jumping(), {**environ, **SOON}
    with (
        opened(often, clock, workers=8) as server,
        opened(often, clock, workers=8) as other,
        opened(often, clock, workers=0) as beside,
    ):
        server.look_after_every_run(tick_s=0.1)
        other.look_after_every_run(tick_s=0.1)
        yield Machine(clock, server, other, beside)


@pytest.mark.parametrize(
    "offs",
    [
        pytest.param((HOUR,), id="ahead"),
        pytest.param((-HOUR,), id="back"),
        pytest.param((HOUR, timedelta()), id="ahead and back", marks=pytest.mark.nightly),
        pytest.param((-HOUR, timedelta()), id="back and ahead", marks=pytest.mark.nightly),
        pytest.param((HOUR, -HOUR, HOUR, timedelta()), id="to and fro", marks=pytest.mark.nightly),
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

    assert acquire_run(server.engine, remote, "vm-1").manifest.position.lease is not None
    for run_id in (held, failed):
        assert server.wait(run_id, 60).status == "COMPLETED"
    assert server.show(failed).steps["fail_twice"].attempts.failed == 2
    attempts = server.show(held).position.attempts
    assert (CALLS[held, "hold"], attempts.expired, attempts.failed) == (1, 0, 0)


def test_a_lease_that_is_renewed_after_the_clock_went_back_is_no_longer_than_any(
    environ: dict[str, str],
) -> None:
    """A remote worker's may be renewed before a sweep looks; and then the worker may die."""

    class Set(FrozenClock):
        off = timedelta()

        def now(self) -> Any:
            return super().now() + self.off

    clock = Set()
    with opened(environ, clock, workers=0) as engine:
        run_id = engine.start("away", {"n": 1}).run_id
        engine.run_until_idle()
        claimed = acquire_run(engine.engine, run_id, "vm-1").manifest
        mine = LeaseCredentials(run_id, fence_of(claimed))
        for _ in range(4):
            clock.advance(20)
            renew_lease(engine.engine, mine)

        clock.off = -HOUR
        clock.advance(5)
        renew_lease(engine.engine, mine)
        engine.adopt_all()
        lease = engine.show(run_id).position.lease

        assert lease is not None
        assert lease.expires_at == clock.now() + timedelta(seconds=30)
        assert clock.now() - lease.acquired_at == timedelta(seconds=80)


def test_a_remote_step_whose_time_passed_without_a_server_waits_anew(
    environ: dict[str, str],
) -> None:
    """There was none that its workers could have asked."""
    clock = FrozenClock()
    with opened(environ, clock, workers=0) as engine:
        run_id = engine.start("away", {"n": 1}).run_id
        engine.run_until_idle()

    clock.advance(2 * HOUR)
    with opened(environ, clock, workers=0) as engine:
        engine.adopt_all()
        claim_by = engine.show(run_id).position.dispatch.claim_by

    assert claim_by is not None
    assert claim_by > clock.now()


def test_an_announcement_waits_no_longer_after_the_clock_went_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its channel fails at first: the next try would come once the clock has caught up."""
    tries: list[str] = []

    def send(self: object, delivery: Delivery, *, timeout: float) -> None:
        if delivery.pipeline == "large":
            tries.append(delivery.run_id)
            if len(tries) == 1:
                raise ChannelUnavailableError(channel="log", problem="it is away")

    monkeypatch.setattr(RecordedChannels, "send", send)
    run_id = machine.server.start("large", {"n": 1}).run_id
    of_run = Query("deliveries", equal={"runId": run_id})

    def state() -> DeliveryState:
        found = machine.server.engine.documents.query(of_run)
        return Delivery.model_validate(found[0].document).state

    until(lambda: bool(tries))
    until(lambda: state() is not DeliveryState.CLAIMED)

    machine.jump(-HOUR)

    until(lambda: state() is DeliveryState.ANNOUNCED)
    assert tries == [run_id] * 2
