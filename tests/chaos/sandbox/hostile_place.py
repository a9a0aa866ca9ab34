"""A worker that runs hostile handlers at once, and what is known of each of them afterwards."""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.devserver.server_process import running_processes
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.in_process import InProcessEngine
from tests.chaos.sandbox import hostile
from tests.chaos.sandbox.hostile_imports import (
    dies,
    eats_memory,
    exits,
    fails,
    hangs,
    is_killed,
    prints,
    starts_threads,
)
from tests.worlds.waiting import until

#: A handler gets SoftTimeoutError after the difference of the two, and is killed at the first.
TIMEOUT: Final = timedelta(seconds=2)
CLEANUP: Final = timedelta(seconds=0.5)
SOFT_S: Final = (TIMEOUT - CLEANUP).total_seconds()

#: A busy machine renews it late, but in time.
LEASE_S: Final = 9

MEMORY_LIMIT: Final = 96 * 2**20
_LIMITED: Final = ("eats_memory", "eats_memory_in_children", "import_eats_memory")

IN_C: Final = ("blocks_in_c", "holds_the_interpreter")

HANG_AT_A_LINE: Final = (
    *IN_C,
    "awaits",
    "hangs_in_a_callback",
    "ignores_signals",
    "sleeps",
    "spins",
    "swallows",
    "takes_signals_over",
    "waits_for_a_thread",
)
#: Each of these takes a processor to itself, as `spins` does.
SPIN: Final = ("backtracks", "spins_in_a_coroutine")
HANG: Final = (
    "never_ends_its_output",
    "raises_what_hangs",
    "says_again_that_it_is_imported",
    "stops_itself",
    "swallows_in_a_coroutine",
    "swallows_in_the_end",
)

#: Those that may not end before their limit.
_HURRIED: Final = (
    *HANG_AT_A_LINE,
    *SPIN,
    *HANG,
    "becomes_another_program",
    "breaks_what_carries_its_answer",
    "closes_everything_and_hangs",
    "forgets_its_signals",
    "has_many_children",
    "import_hangs",
)
#: How many times as long a handler may take, if not 30 times: the others are not about a machine
#: that is busy. The last of these ends at its limit, and does much before it.
_TIMES: Final = {**dict.fromkeys(_HURRIED, 1), "forges_answers": 5}

IMPORTS: Final = {
    f"import_{module.__name__.rpartition('.')[2]}": module
    for module in (dies, eats_memory, exits, fails, hangs, is_killed, prints, starts_threads)
}
PATIENCE_S: Final = 120.0

#: Of the two modules of handlers here that can be forked once they are imported.
_DESCRIPTORS_OF_ZYGOTES: Final = 2 * 3


@dataclass(frozen=True, slots=True)
class Story:
    """The end of a run whose first step has a hostile handler.

    Args:
        how: how the first attempt ended: a reason, the code of an error, or COMPLETED.
        problem: the error's message.
        stacks: what the handler was doing.
        seconds: how long the attempt took, by the store's clock.
        run: the run as it was left.
        events: its trace.
    """

    how: str
    problem: str
    stacks: str
    seconds: float
    run: Manifest
    events: list[TraceEvent]

    @property
    def output(self) -> Any:
        """The output of the hostile step."""
        step = self.run.steps[self.run.plan[0]]
        return None if step.output is None else json.loads(step.output)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many attempts failed, were interrupted, and expired."""
        counts = self.run.steps[self.run.plan[0]].attempts
        return counts.failed, counts.interrupted, counts.expired

    @property
    def goes_on(self) -> bool:
        """Whether the next step ran, given what the hostile one gave."""
        following = self.run.steps.get("following")
        return following is not None and following.output == json.dumps(
            {"after": self.output}, separators=(",", ":")
        )


class HostilePlace:
    """An engine whose workers run hostile steps, each followed by one that behaves.

    Args:
        folder: for the store, and for what handlers note.
        reuse: how many attempts of a step one process may serve.
    """

    def __init__(self, folder: Path, reuse: int = 1) -> None:
        self.folder = folder
        steps = [_entry(name, reuse) for name in _handlers()]
        pipelines = [
            PipelineEntry(name=name, steps=(name, "following"))
            for name in _handlers()
            if name != "following"
        ]
        self.engine = InProcessEngine(
            Registry("dispatch", steps),
            Registry("pipelines", pipelines),
            environ={
                "LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db",
                "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
                "PIPELINE_MIN_BACKOFF_S": "0.05",
                "PIPELINE_LEASE_TTL_S": f"{LEASE_S}",
                "PIPELINE_MAX_RETRIES": "2",
                "PIPELINE_IMPORT_TIMEOUT_S": "10",
            },
            workers=12,
        )
        warm = self.run("polite", "polite")
        assert warm["polite"].how == "COMPLETED", warm
        self._descriptors = len(open_descriptors()) + _DESCRIPTORS_OF_ZYGOTES
        self._threads = threading.active_count()

    def run(self, *names: str, **given: Any) -> Mapping[str, Story]:
        """Run these handlers at once; return what became of each."""
        return {name: self.story(run_id) for name, run_id in self.begin(*names, **given).items()}

    def begin(self, *names: str, **given: Any) -> Mapping[str, str]:
        """Start a run of each of these handlers; return their ids."""
        begun = {}
        for name in names:
            folder = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
            folder.mkdir()
            begun[name] = self.engine.start(name, {"folder": str(folder), **given}).run_id
        return begun

    def story(self, run_id: str) -> Story:
        """Wait for the end of the run; return what became of it."""
        run = self.engine.wait(run_id, PATIENCE_S)
        events = self.engine.trace(run_id)
        begun = next(event for event in events if event.type is TraceType.STEP_STARTED)
        ends = (
            *(TraceType.STEP_TERMINATED, TraceType.STEP_ERROR),
            *(TraceType.STEP_BLOCKED, TraceType.STEP_COMPLETED),
        )
        end = next(event for event in events if event.type in ends)
        facts = end.model_dump(by_alias=True)
        seconds = (end.at - begun.at).total_seconds()
        how = facts.get("errorCode") or end.reason or "COMPLETED"
        return Story(
            how,
            end.detail or "",
            facts.get("stacks") or "",
            seconds,
            run,
            list(events),
        )

    def left_behind(self) -> set[int]:
        """Return the processes that handlers noted, and that run on."""
        noted = {int(path.name) for path in self.folder.glob("*/*") if path.name.isdecimal()}
        return noted & set(running_processes())

    def leaks(self) -> list[str]:
        """Return what the worker has more of than before it ran its first hostile handler."""
        more_files = len(open_descriptors()) - self._descriptors
        more_threads = threading.active_count() - self._threads
        found = [f"{more_files} descriptors"] if more_files > 0 else []
        return [*found, f"{more_threads} threads"] if more_threads > 0 else found

    def check_nothing_is_left(self) -> None:
        """Wait until no process, descriptor or thread is left of what ran.

        Of processes that wait for a further attempt there are those alone, and none below them.
        """
        sandbox = self.engine._bundle.processes._opened()  # noqa: SLF001 - nobody else asks
        idle = sandbox._children.idle  # noqa: SLF001 - as above
        until(lambda: self.left_behind() <= {child.pid for _, child in idle._waiting}, 30)  # noqa: SLF001
        idle.end()
        until(lambda: not self.left_behind(), 30)
        until(lambda: not self.leaks(), 30)

    def close(self) -> None:
        """Close the engine, and see that no process is left of it."""
        self.engine.close()
        until(lambda: not self.left_behind(), 30)


def lines_of(name: str) -> str:
    """Return a pattern of the numbers of the lines where a hostile handler, or a module, hangs."""
    code: Any = IMPORTS.get(name) or inspect.unwrap(getattr(hostile, name))
    lines, first = inspect.getsourcelines(code)
    found = [number for number, line in enumerate(lines) if hostile.HANGS_HERE in line]
    assert found, name
    return "|".join(str(number + max(first, 1)) for number in found)


def open_descriptors() -> list[str]:
    """Return what this process has open, but for the files of stores."""
    found = []
    for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a descriptor may be gone at once
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - as above
        except OSError:
            continue
        if "runs.db" not in target:
            found.append(target)
    return found


def _handlers() -> dict[str, str]:
    """Return the paths of all handlers by the names of their steps."""
    own = {
        name: f"tests.chaos.sandbox.hostile:{name}"
        for name, handler in vars(hostile).items()
        if callable(handler) and not isinstance(handler, type | ModuleType) and _is_handler(handler)
    }
    return own | {name: f"{module.__name__}:handle" for name, module in IMPORTS.items()}


def _is_handler(handler: Any) -> bool:
    of_module = getattr(handler, "__module__", "") == hostile.__name__
    return of_module and list(inspect.signature(handler).parameters) == ["ctx", "given"]


def _entry(name: str, reuse: int) -> StepDispatchEntry:
    more: dict[str, Any] = {"memory_limit": MEMORY_LIMIT} if name in _LIMITED else {}
    return StepDispatchEntry(
        step_type=name,
        handler=_handlers()[name],
        agent_timeout=TIMEOUT * _TIMES.get(name, 30),
        max_retries=0 if name in IMPORTS else None,
        dispatch_deadline=timedelta(minutes=2),
        cleanup_ttl=CLEANUP,
        reuse=reuse,
        **more,
    )
