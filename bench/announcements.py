"""Announcements in a storm, and what they cost.

The storm is that of the tests: each message is delivered three times at once, a fifth of the
requests fails, and processes that deliver are killed at random, at each point of a delivery. The
floor of the extra sends is what was counted as unknown: what is above it has no explanation.

Reads and writes are counted exactly: of the delivery guard, by one announcement; of the end of a
run, by one channel; and of a step that is not the last.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.firestore_steps import OwnTasks
from bench.long_steps import exactly, open_metered
from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.bootstrap import boot
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.event_message import EventMessage
from leasehold.registry.channels import NO_CHANNELS, LogChannel
from leasehold.registry.pipelines import Catalog
from leasehold.services.deliver_notification import DeliveryHint, DeliveryOutcome, deliver
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.start_run import StartRequest, start_run
from tests.chaos.storm.catalog import NAMES
from tests.chaos.storm.scenario import Storm, survive
from tests.worlds.emulators import MissingEmulatorError, firestore_host

STEPS: Final = tuple(f"step-{number}" for number in range(1, 11))
TOLD: Final = Registry("channels", [LogChannel(name=name) for name in NAMES])


def no_op(ctx: StepContext, given: Any) -> Any:  # noqa: ARG001 - a handler's shape
    """Do nothing, durably."""
    return given


def catalog_with(channels: Registry[Any]) -> Catalog:
    """Return pipelines of one step and of ten, announced over these channels."""
    entries = [
        StepDispatchEntry(
            step_type=name,
            handler="bench.announcements:no_op",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
        )
        for name in STEPS
    ]
    short = PipelineEntry(name="short", steps=STEPS[:1])
    pipelines = Registry("pipelines", [short, PipelineEntry(name="long", steps=STEPS)])
    return Catalog(Registry("dispatch", entries), pipelines, channels=channels)


class Taken:
    """A bus that keeps its messages, and a channel that takes all it gets."""

    def __init__(self) -> None:
        self.messages: list[EventMessage] = []

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Keep the messages."""
        self.messages += messages

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way
        """Do nothing."""
        return True

    def send(self, _: Delivery, *, timeout: float) -> str:  # noqa: ARG002 - it takes no time
        """Take the announcement."""
        return "taken"


@dataclass(frozen=True, slots=True)
class Bench:
    """An engine whose store is metered."""

    engine: Engine
    tasks: OwnTasks
    told: Taken
    taken: Callable[[], Counter[str]]

    def run(self, pipeline: str, runs: int) -> tuple[Counter[str], float]:
        """Run a pipeline so often; return what that asked of the store, and the CPU seconds."""
        self.taken()
        began = time.process_time()
        for number in range(runs):
            start_run(self.engine, StartRequest(pipeline, {"number": number}))
            while self.tasks.waiting:
                task = self.tasks.waiting.pop()
                execute_step(self.engine, Hint(task.run_id, task.generation))
        return self.taken(), time.process_time() - began


@contextmanager
def bench_on(store: str, channels: Registry[Any]) -> Iterator[Bench]:
    """Open an engine on SQLite or Firestore, or raise MissingEmulatorError."""
    with TemporaryDirectory() as folder:
        documents, taken = open_metered(store, Path(folder))
        tasks, told = OwnTasks(), Taken()
        bundle = boot(
            {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
            catalog=catalog_with(channels),
            documents=documents,
            tasks=tasks,
        )
        engine = replace(
            bundle.engine,
            events=told,
            channels=replace(bundle.engine.channels, open=lambda _: told),
        )
        try:
            yield Bench(engine, tasks, told, taken)
        finally:
            bundle.close()


def costs(store: str, runs: int) -> list[Figure]:
    """Return what steps, ends of runs and announcements ask of a store, and their CPU."""
    with bench_on(store, NO_CHANNELS) as plain, bench_on(store, TOLD) as told:
        for bench in (plain, told):
            bench.run("short", 1)
            bench.told.messages.clear()
        without, _ = plain.run("short", runs)
        short, _ = told.run("short", runs)
        guard = _announce_all(told)
        long, _ = told.run("long", runs)
        cpu = [_milliseconds(told, plain, runs, is_first=number % 2 == 0) for number in range(6)]
    steps, channels = (len(STEPS) - 1) * runs, len(NAMES) * runs
    reads, writes = (long[kind] - short[kind] for kind in ("reads", "writes"))
    added = (short["writes"] - without["writes"]) / channels
    return [
        exactly(f"reads of a step on {store}", "reads", reads / steps, 1),
        exactly(f"writes of a step on {store}", "writes", writes / steps, 2),
        exactly(f"writes a channel adds to the end of a run on {store}", "writes", added, 1),
        exactly(f"reads of the guard, by announcement, on {store}", "reads", guard["reads"], 1),
        exactly(f"writes of the guard, by announcement, on {store}", "writes", guard["writes"], 3),
        figure(f"CPU of a durable run with three channels on {store}; floor: none", "ms", cpu),
    ]


def _milliseconds(told: Bench, plain: Bench, runs: int, *, is_first: bool) -> tuple[float, float]:
    """Return the CPU of a run with channels and without, measured in this order or the other."""
    order = (told, plain) if is_first else (plain, told)
    first, second = (bench.run("short", runs)[1] / runs * 1000 for bench in order)
    return (first, second) if is_first else (second, first)


def _announce_all(bench: Bench) -> dict[str, float]:
    """Announce what is due; return what one announcement asks of the store."""
    hints = [_hint(message.delivery) for message in bench.told.messages]
    for channel in NAMES:  # the first one of a process looks for the breaker
        place = next(number for number, hint in enumerate(hints) if hint.channel == channel)
        deliver(bench.engine, hints.pop(place))
    bench.taken()
    outcomes = Counter(deliver(bench.engine, hint) for hint in hints)
    assert outcomes == {DeliveryOutcome.ANNOUNCED: len(hints)}
    return {name: round(count / len(hints), 3) for name, count in bench.taken().items()}


def _hint(delivery: Delivery) -> DeliveryHint:
    return DeliveryHint(delivery.run_id, delivery.occurrence, delivery.channel)


def in_a_storm(kind: str, announcements: int, at_once: int) -> list[Figure]:
    """Return what came of a storm."""
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        after = survive(Storm(kind, announcements, at_once=at_once), Path(folder))
        seconds = time.perf_counter() - began
    requests = after.weathers.total()
    failed = requests - after.weathers["None"]
    told = after.in_state(DeliveryState.ANNOUNCED)
    name = f"of {announcements} announcements over 3 channels on {kind}"
    extra = figure(f"extra sends {name}; floor: unknown", "sends", [(after.extra, after.unknown)])
    return [
        exactly(f"missing {name}", "deliveries", len(after.missing), 0),
        replace(extra, target="<= 1.0", holds=extra.ratio <= 1.0),
        exactly(f"extra sends without an explanation {name}", "sends", len(after.unexplained), 0),
        exactly(f"announced {name}", "deliveries", told, after.expected),
        exactly(
            f"shown twice by a provider that takes keys {name}",
            "deliveries",
            after.keys - after.expected,
            0,
        ),
        figure(f"requests that failed or came late {name}", "requests", [(failed, requests)]),
        figure(f"processes killed {name}", "kills", [(after.words[None], after.expected)]),
        figure(
            f"messages published by the sweep {name}",
            "messages",
            [(after.reannounced, after.expected)],
        ),
        figure(f"seconds {name}; floor: deliveries", "s", [(seconds, after.expected)]),
    ]


def measure(announcements: int, runs: int, at_once: int) -> list[Figure]:
    """Return the figures of the stores that are there.

    Args:
        announcements: of the storm.
        runs: whose cost is counted.
        at_once: how many messages are delivered at once, each three times.
    """
    rows = []
    for store in ("SQLite", "Firestore"):
        try:
            if store == "Firestore":
                firestore_host()
            rows += in_a_storm(store.lower(), announcements, at_once)
            rows += costs(store, runs)
        except MissingEmulatorError as missing:
            print(f"without Firestore: {missing}")
    return rows


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--announcements", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    report("announcements", measure(given.announcements, given.runs, given.at_once))


if __name__ == "__main__":
    main()
