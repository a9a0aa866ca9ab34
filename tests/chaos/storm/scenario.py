"""The storm: each message comes three times, providers fail, and processes are killed.

A scenario for the tests, where it is small, and for the benchmarks, where it is not.
"""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lifecycle import Operation
from leasehold.ports.documents import Query
from leasehold.services.deliver_notification import DeliveryHint
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.paging import scan
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.chaos.storm.catalog import NAMES
from tests.chaos.storm.chance import LOST, roll
from tests.chaos.storm.provider import TIMEOUT_S, Taken, provider
from tests.chaos.storm.sender import DEAF_URL, SECRET, URL
from tests.chaos.storm.workers import Function, Place, engine_at

#: How runs end, in turn: the one that blocks is tried once more, and blocks again.
ENDS: Final = ("done", "blocked", "done", "dead", "done", "cancelled", "done", "done")
#: How often each is told.
TOLD: Final = {"done": 1, "blocked": 2, "dead": 1, "cancelled": 1}
_SWEEPS: Final = 500
#: The delivery whose alarm rings first; one that is owed nothing more has no alarm.
FIRST_OWED: Final = Query("deliveries", order_by="alarmAt", limit=1)


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm.

    Args:
        kind: of the store.
        announcements: how many there are, over three channels each.
        seed: what happens by chance.
        at_once: how many messages are delivered at once, each three times.
    """

    kind: str
    announcements: int
    seed: int = 1
    at_once: int = 2


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The result of a storm.

    Args:
        expected: the deliveries that there were to be.
        deliveries: those that there are, as they ended.
        taken: what the provider took.
        words: how often which answer was given to a message; None: its process was killed.
        weathers: how often the provider did what.
        reannounced: how many messages the sweep published.
    """

    expected: int
    deliveries: Sequence[Delivery]
    taken: Sequence[Taken]
    words: Counter[str | None]
    weathers: Counter[str]
    reannounced: int

    @property
    def missing(self) -> list[str]:
        """The deliveries that reached no channel."""
        taken = {each.subject for each in self.taken}
        return [each.delivery_id for each in self.deliveries if each.delivery_id not in taken]

    @property
    def extra(self) -> int:
        """How often a provider took what it had taken already."""
        return len(self.taken) - len({each.subject for each in self.taken})

    @property
    def unknown(self) -> int:
        """How many sends were counted with an unknown result."""
        return sum(each.unknown for each in self.deliveries)

    @property
    def unexplained(self) -> list[str]:
        """The deliveries that were taken more often than was counted."""
        times = Counter(each.subject for each in self.taken)
        return [
            each.delivery_id
            for each in self.deliveries
            if times[each.delivery_id] - 1 > each.unknown
        ]

    @property
    def keys(self) -> int:
        """How many different announcements a provider saw that goes by the keys."""
        return len({each.key for each in self.taken})

    def in_state(self, state: DeliveryState) -> int:
        """Return how many deliveries ended so."""
        return sum(each.state is state for each in self.deliveries)


def survive(storm: Storm, folder: Path) -> Aftermath:
    """Have the storm, until each delivery is announced or given up; return what came of it."""
    with provider(storm.seed) as there:
        addresses = {URL: there.url, DEAF_URL: there.deaf_url}
        place = Place(storm.kind, folder, storm.seed, settings_in(folder) | addresses)
        with engine_at(place) as opened:  # first: processes that are killed find its store there
            function = Function(place, storm.at_once)
            try:
                engine = replace(opened, events=LossyBus(function, storm.seed))
                expected = announce(engine, storm)
                reannounced = reconcile(engine, function)
                deliveries = deliveries_in(engine)
            finally:
                function.close()
        return Aftermath(
            expected, deliveries, there.taken, function.words, there.weathers, reannounced
        )


def settings_in(folder: Path) -> dict[str, str]:
    """Return the settings of all engines: patience is short, as a test cannot wait for an hour."""
    return {
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
        "LEASEHOLD_ALLOW_LOCAL_CHANNELS": "yes",
        SECRET: f"whsec_{base64.b64encode(bytes(32)).decode()}",
        "PIPELINE_DISPATCH_GRACE_S": "0.5",
        "PIPELINE_DELIVERY_TIMEOUT_S": str(TIMEOUT_S),
        "PIPELINE_DELIVERY_WAIT_S": "0.05",
        "PIPELINE_DELIVERY_MAX_WAIT_S": "1",
        "PIPELINE_DELIVERY_CALL_S": "4",
        "PIPELINE_CHANNEL_REST_S": "0.3",
    }


class LossyBus:
    """The event bus port: each message comes to the function, or is lost by chance."""

    def __init__(self, function: Function, seed: int) -> None:
        self._function = function
        self._seed = seed
        self._published: Counter[DeliveryHint] = Counter()

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way
        """Do nothing."""
        return True

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Take the messages; lose some of them."""
        for message in messages:
            it = message.delivery
            hint = DeliveryHint(it.run_id, it.occurrence, it.channel)
            self._published[hint] += 1
            if roll(self._seed, "lost", it.delivery_id, self._published[hint]) >= LOST:
                self._function.take(hint)


def announce(engine: Engine, storm: Storm) -> int:
    """Have runs end and block until there are so many announcements; return what they owe."""
    told = number = 0
    while told < storm.announcements:
        ends = ENDS[number % len(ENDS)]
        end(engine, f"storm-{storm.seed}-{number}", ends)
        told += TOLD[ends]
        number += 1
    return told * len(NAMES)


def end(engine: Engine, key: str, ends: str) -> None:
    """Have a run end in this way."""
    run = start_run(engine, StartRequest("act", {"ends": ends}, key)).manifest
    if ends == "cancelled":
        operate(engine, run.run_id, OperationRequest(Operation.CANCEL, "storm"))
        return
    execute_step(engine, Hint(run.run_id, 1))
    if ends == "blocked":
        again = operate(engine, run.run_id, OperationRequest(Operation.RETRY, "storm")).manifest
        execute_step(engine, Hint(run.run_id, again.position.dispatch.generation))


def reconcile(engine: Engine, function: Function) -> int:
    """Sweep until nothing is owed; return how many messages that published again."""
    reannounced = 0
    for _ in range(_SWEEPS):
        function.wait_until_idle()
        owed = engine.documents.query(FIRST_OWED)
        if not owed:
            return reannounced
        alarm = Delivery.model_validate(owed[0].document).alarm_at
        assert alarm is not None
        wait = (alarm - engine.clock.now()).total_seconds()
        threading.Event().wait(max(0.02, wait))  # real processes have real alarms
        reannounced += sweep(engine).reannounced
    raise AssertionError(f"still owed after {_SWEEPS} sweeps: {owed}")


def deliveries_in(engine: Engine) -> list[Delivery]:
    """Return all deliveries of the store."""
    query = Query("deliveries", order_by="createdAt", limit=300)
    return [Delivery.model_validate(one.document) for one in scan(engine.documents, query)]
