"""Long steps that are measured, and the meters that count what they cost.

They are their own module because Python knows the benchmark under two names: as the program,
and as the module that a handler is in.
"""

from __future__ import annotations

import gzip
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pydantic_core

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.ports.artifacts import Artifacts
from leasehold.registry.dispatch import Isolation
from leasehold.registry.pipelines import Catalog

#: What one checkpoint holds: from 32 KiB on it is a file.
BYTES: Final[Mapping[str, int]] = {"small": 200, "large": 40_000}
_WORDS: Final = 4000


class CountedArtifacts:
    """The artifacts port, which counts the files that are put and deleted."""

    def __init__(self, inner: Artifacts, counts: Counter[str]) -> None:
        self._inner = inner
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        """Return what the port has under that name."""
        return getattr(self._inner, name)

    def put(self, name: str, data: bytes) -> str:
        """Put and count."""
        self._counts["puts"] += 1
        return self._inner.put(name, data)

    def delete(self, name: str) -> None:
        """Delete and count."""
        self._counts["deletes"] += 1
        self._inner.delete(name)

    def delete_file(self, name: str) -> None:
        """Delete and count."""
        self._counts["deletes"] += 1
        self._inner.delete_file(name)


@dataclass(slots=True)
class LongMeter:
    """How a handler counts what it costs, and what it counted.

    Args:
        taken: returns the reads and writes of documents since it was called last.
        files: the puts and deletes of files so far.
        sizes: returns the names of the files there are, and their bytes.
    """

    taken: Callable[[], Counter[str]]
    files: Counter[str]
    sizes: Callable[[], Mapping[str, int]]
    counts: Counter[str] = field(default_factory=Counter)
    took: list[tuple[float, float]] = field(default_factory=list)  # seconds, and the floor's
    bytes: tuple[int, int] = (0, 0)  # and the floor's

    def begin(self) -> None:
        """Forget what was counted so far."""
        self.taken()
        self.files.clear()

    def end(self) -> None:
        """Keep what was counted since `begin`."""
        self.counts = self.taken() + self.files


METERS: Final[dict[str, LongMeter]] = {}  # by store; one run at a time on each


def keep(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Make checkpoints, and count what they cost."""
    meter = METERS[given["store"]]
    beside = "x" * BYTES[given["kind"]]
    began = time.perf_counter()
    meter.begin()
    for number in range(given["checkpoints"]):
        ctx.checkpoint(number + 1, {"number": number, "beside": beside})
    meter.end()
    meter.took.append((time.perf_counter() - began, 1.0))
    return {}


def save(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Save a large state again and again, turn by turn with `gzip -6` alone of the same JSON."""
    state, took = STATES[given["kind"]](given["bytes"]), []
    for number in range(given["rounds"]):
        text = pydantic_core.to_json(state)
        began = time.perf_counter()
        floor = len(gzip.compress(text, 6))
        between = time.perf_counter()
        ctx.checkpoint(number + 1, state)
        took.append((time.perf_counter() - between, between - began))
    if meter := METERS.get(given["store"]):  # not in a process of the handler's own
        largest = max(meter.sizes().values())
        meter.bytes = (largest, floor)
    return took


def call(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Have calls made once that cost nothing, and count what it costs to record them."""
    meter = METERS[given["store"]]
    meter.begin()
    for number in range(given["calls"]):
        ctx.once(f"call {number}", answer, number)
    meter.end()
    return {}


def answer(number: int) -> str:
    """Return what a model says."""
    return f"{number} is a number."


def relay(ctx: StepContext, given: dict[str, Any]) -> Any:
    """End for the next attempt to go on, again and again; count from the first to the last."""
    meter, done = METERS[given["store"]], 0 if ctx.resume is None else ctx.resume.iteration_count
    if done == 0:
        meter.begin()
    if done < given["continuations"]:
        ctx.checkpoint(done + 1, done)
        ctx.continue_later()
    meter.end()
    return {}


def texts(size: int) -> list[dict[str, Any]]:
    """Return findings as a model writes them: words, with the frequencies of a language."""
    chance = random.Random(1)  # noqa: S311 - the same in each run
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    words = [
        "".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 11)))
        for _ in range(_WORDS)
    ]
    shares = [1 / (rank + 2) for rank in range(_WORDS)]
    found: list[dict[str, Any]] = []
    left = size
    while left > 0:
        text = " ".join(chance.choices(words, shares, k=120))
        found.append({"document": f"docs/{len(found)}.md", "line": len(found) * 7, "text": text})
        left -= len(text) + 50
    return found


def numbers(size: int) -> list[list[float]]:
    """Return embeddings: vectors of numbers, of which little is gained by compression."""
    chance = random.Random(1)  # noqa: S311 - the same in each run
    return [[round(chance.gauss(0, 1), 6) for _ in range(256)] for _ in range(size // 2560)]


STATES: Final[Mapping[str, Callable[[int], Sequence[Any]]]] = {"texts": texts, "numbers": numbers}


def _step(name: str, handler: str, isolation: Isolation = "inline") -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{handler}",
        agent_timeout=timedelta(minutes=10),
        dispatch_deadline=timedelta(minutes=15),
        heartbeat_interval=None,  # a heartbeat is its own write
        isolation=isolation,
    )


_STEPS: Final = [
    _step("keep", "keep"),
    _step("save", "save"),
    _step("save-elsewhere", "save", "process"),
    _step("call", "call"),
    _step("relay", "relay"),
]

CATALOG: Final = Catalog(
    steps=Registry("dispatch", _STEPS),
    pipelines=Registry(
        "pipelines",
        [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in _STEPS],
    ),
)
