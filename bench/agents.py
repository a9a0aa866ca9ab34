"""Agents in a step: long ones that are killed, many tools at once, and other engines beside ours.

The models are fake, and there is no network. The floor of calls made is those that the agent has,
and one more a kill for each that was under way. The other engines run the same agent in the same
run of the benchmark, each in its own environment: see bench/peers/, and `make bench-agents`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, cast

from bench.agent_handlers import CALL_S, CATALOG, METERS, AgentMeter
from bench.firestore_steps import OwnTasks
from bench.long_steps import Bench, exactly, open_metered
from bench.measuring import Figure, figure, report
from leasehold.bootstrap import Around, boot
from leasehold.in_process import InProcessEngine
from leasehold.ports.documents import Documents, Query, Snapshot
from tests.worlds.emulators import MissingEmulatorError
from tests.worlds.wrapped import Wrapped

_PATIENCE_S: Final = 600.0
#: The calls whose time is compared: so many from the tenth on, and the last ones.
_COMPARED: Final = 100
_ENVIRONMENTS: Final = Path(__file__).parents[1] / ".venv"


class CountedQueries(Wrapped[Documents]):
    """The documents port; each document that a query finds is a read."""

    def __init__(self, inner: Documents, counts: Counter[str]) -> None:
        super().__init__(inner)
        self._counts = counts

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Query and count; a query that finds nothing is a read, too."""
        found = self.inner.query(query)
        self._counts["found"] += max(1, len(found))
        return found


@contextmanager
def agents_on(store: str) -> Iterator[Bench]:
    """Open an engine on SQLite or Firestore, or raise MissingEmulatorError."""
    with TemporaryDirectory() as folder:
        documents, taken = open_metered(store, Path(folder))
        found: Counter[str] = Counter()
        tasks = OwnTasks()
        bundle = boot(
            {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
            catalog=CATALOG,
            documents=documents,
            tasks=tasks,
            around=Around(documents=lambda it: cast(Documents, CountedQueries(it, found))),
            isolation="inline",
        )

        def all_taken() -> Counter[str]:
            counts = taken() + found
            found.clear()
            return counts

        METERS[store] = AgentMeter(all_taken)
        try:
            yield Bench(store, bundle.engine, tasks)
        finally:
            bundle.close()


def one_long_agent(store: str, calls: int) -> list[Figure]:
    """Return what a call costs, early and late, and what it costs to go on after all of them."""
    with agents_on(store) as bench:
        bench.run("converse", calls=calls)
    meter, named = METERS[store], f"of {calls:,} calls in one step on {store}"
    early, late = meter.took[10 : 10 + _COMPARED], meter.took[-_COMPARED:]
    return [
        figure(
            f"CPU of each of the last {_COMPARED} calls, beside those from the tenth on, {named}",
            "s",
            [(median(late), median(early))],
            at_most=1.1,
        ),
        # renewals of the lease are writes, too
        figure(f"writes {named}", "writes", [(meter.made["writes"], calls)], at_most=1.01),
        figure(
            f"time until all results are there, beside its CPU, {named}",
            "s",
            [(meter.resume_s, meter.resume_cpu_s)],
            value_at_most=1.0,
        ),
        figure(
            f"reads of the results {named}",
            "reads",
            [(meter.resumed["found"], calls)],
            at_most=1.01,
        ),
    ]


class Killed(NamedTuple):
    """A run that was killed again and again, and then done.

    Args:
        made: the numbers of all calls that were made, in order.
        returned: what each call returned, each time.
        attempts: of the run, by the reason of their end.
    """

    made: Sequence[str]
    returned: Sequence[str]
    attempts: int


def killed_run(pipeline: str, calls: int, kills: int, seconds: float) -> Killed:
    """Run an agent whose worker is killed at random, so many times.

    Args:
        pipeline: of the catalog.
        calls: how many it makes.
        kills: after a number of calls that is drawn for each.
        seconds: about how long a call takes.
    """
    chance = random.Random(1)  # noqa: S311 - the same in each run
    with TemporaryDirectory() as name:
        folder = Path(name)
        given = {"folder": name, "calls": calls, "seconds": seconds}
        with _engine(folder, workers=0) as idle:
            run_id = idle.start(pipeline, given).run_id
        for after in sorted(chance.sample(range(1, calls), kills)):
            worker = _worker(folder, run_id)
            while worker.poll() is None and len(_lines(folder / "made")) < after:
                time.sleep(0.001)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        assert _worker(folder, run_id).wait(_PATIENCE_S) == 0
        with _engine(folder, workers=0) as idle:
            run = idle.show(run_id)
        assert run.status == "COMPLETED", run.error
        results = json.loads(run.steps[pipeline].output or "")
        assert results == list(range(calls))
        return Killed(_lines(folder / "made"), _lines(folder / "returned"), run.fencing_token)


def _worker(folder: Path, run_id: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.agents", "--work", str(folder), run_id]
    return subprocess.Popen(command)  # noqa: S603 - this program


def _work(folder: Path, run_id: str) -> None:
    """Move a run on until it is terminal, or this process is killed."""
    with _engine(folder, workers=1) as engine:
        engine.adopt(run_id)
        engine.wait(run_id, _PATIENCE_S)


def _engine(folder: Path, workers: int) -> InProcessEngine:
    settings = {
        "LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "LEASEHOLD_ISOLATION": "inline",
    }
    return InProcessEngine(
        CATALOG.steps,
        CATALOG.pipelines,
        environ=settings,
        workers=workers,
        warn=lambda _: None,
        report=lambda _: None,  # each kill is a warning
    )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def killed_agents(calls: int, kills: int, tools: int, tool_kills: int) -> list[Figure]:
    """Return what kills repeat of a long agent, and of many tools at once."""
    long = killed_run("killed", calls, kills, CALL_S)
    name = f"calls made of {calls:,} in one step, killed {kills} times"
    rows = [
        figure(name, "calls", [(len(long.made), calls + kills)], at_most=1.0),
        figure(f"attempts of it, limited to about {_COMPARED} calls", "attempts", [
            (long.attempts, calls / _COMPARED + kills)
        ]),
    ]  # fmt: skip
    batch = killed_run("batch", tools, tool_kills, CALL_S * 5)
    name = f"of {tools} tools at once, killed {tool_kills} times"
    once = len(set(batch.returned)) - tools
    return [
        *rows,
        exactly(f"results beside the first one {name}", "results", once, 0),
        figure(f"calls made {name}", "calls", [(len(batch.made), tools * (1 + tool_kills))],
               at_most=1.0),
    ]  # fmt: skip


# Other engines, beside ours.


class Engine(NamedTuple):
    """An engine that runs the fake agent.

    Args:
        module: of bench/peers/.
        environment: below .venv.
        name: for people.
    """

    module: str
    environment: str
    name: str


#: By the library of the agent: the library alone, ours, and the others.
ENGINES: Final = (
    (
        Engine("plain", "integrations/pydantic_ai", "Pydantic AI"),
        (Engine("leasehold", "integrations/pydantic_ai", "Leasehold"),),
        (Engine("dbos", "bench/dbos", "DBOS"), Engine("prefect", "bench/prefect", "Prefect")),
    ),
    (
        Engine("langgraph_plain", "bench/langgraph", "LangChain"),
        (
            Engine("leasehold_langgraph", "bench/langgraph", "Leasehold's middleware"),
            Engine("leasehold_saver", "bench/langgraph", "Leasehold's saver"),
        ),
        (Engine("langgraph_sqlite", "bench/langgraph", "LangGraph's SQLite saver"),),
    ),
)


class Facts(NamedTuple):
    """An agent on an engine: seconds of all its calls, bytes, seconds until it went on."""

    took_s: float
    bytes: int
    resumed_s: float


def side_by_side(turns: int, rounds: int) -> list[Figure]:
    """Return the figures of ours beside those of others, of the same agent."""
    rows = []
    calls = 2 * turns + 1
    for plain, ours, others in ENGINES:
        engines = (*ours, *others)
        facts: dict[str, list[Facts]] = {engine.name: [] for engine in engines}
        for _ in range(rounds):
            floor = _whole(plain, turns).took_s
            for engine in engines:
                whole = _measured(engine, turns)
                facts[engine.name].append(whole._replace(took_s=(whole.took_s - floor) / calls))
        for our, other in ((our, other) for our in ours for other in others):
            both = list(zip(facts[our.name], facts[other.name], strict=True))
            named = f"{plain.name} of {turns} turns on {our.name}, beside {other.name}"
            for what, unit, field in _COMPARED_FACTS:
                pairs = [(getattr(mine, field), getattr(theirs, field)) for mine, theirs in both]
                rows.append(figure(f"{what}: {named}", unit, pairs, at_most=1.0))
    return rows


_COMPARED_FACTS: Final = (
    ("overhead a call", "s", "took_s"),
    ("bytes stored", "bytes", "bytes"),
    ("time to resume after SIGKILL", "s", "resumed_s"),
)


def _measured(engine: Engine, turns: int) -> Facts:
    """Return the facts of an agent that ran, and of one that was killed at its last call."""
    whole = _whole(engine, turns)
    with TemporaryDirectory() as folder:
        _run(engine, folder, turns, "die")
        resumed = _run(engine, folder, turns)
    assert resumed["calls"] == 1, f"{engine.name} has made recorded calls again: {resumed}"
    return whole._replace(resumed_s=resumed["resumed"])


def _whole(engine: Engine, turns: int) -> Facts:
    with TemporaryDirectory() as folder:
        facts = _run(engine, folder, turns)
    return Facts(facts["took"], facts["bytes"], 0.0)


def _run(engine: Engine, folder: str, turns: int, *options: str) -> Any:
    """Run the agent in its environment; return what it prints, if it lives so long."""
    python = _ENVIRONMENTS / engine.environment / "bin/python"
    command = [str(python), "-m", f"bench.peers.{engine.module}", folder, str(turns), *options]
    output = Path(folder) / ".." / f"{Path(folder).name}.out"
    with (
        output.open("w") as out,
        subprocess.Popen(  # noqa: S603 - a module beside this one
            command, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process,
    ):
        process.wait(_PATIENCE_S)
        _end_group(process.pid)  # a server that it has started outlives it
    lines = output.read_text().splitlines()
    output.unlink()
    if "die" in options:
        assert process.returncode == -signal.SIGKILL, lines
        return None
    assert process.returncode == 0, f"{engine.name} failed: {' '.join(command)}"
    return json.loads(next(line for line in reversed(lines) if line.startswith("{")))


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    while _is_there(group):
        time.sleep(0.01)


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def measure(calls: int, kills: int, tools: int, tool_kills: int) -> list[Figure]:
    """Return the figures of our own agents, on the stores that are there."""
    rows = killed_agents(calls, kills, tools, tool_kills)
    for store in ("SQLite", "Firestore"):
        try:
            rows += one_long_agent(store, calls)
        except MissingEmulatorError as missing:
            print(f"without Firestore: {missing}")
    return rows


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--tools", type=int, default=100)
    parser.add_argument("--tool-kills", type=int, default=5)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3, help="beside other engines")
    parser.add_argument("--work", nargs=2, help="move on the run of a folder: for the kills")
    given = parser.parse_args()
    if given.work:
        _work(Path(given.work[0]), given.work[1])
        return
    report("agents", measure(given.calls, given.kills, given.tools, given.tool_kills))
    if given.rounds:
        report("agents-beside", side_by_side(given.turns, given.rounds))


if __name__ == "__main__":
    main()
