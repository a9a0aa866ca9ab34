"""Wrong deploys on each store: nothing is given up, nothing is paid twice, and all of it heals."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.bootstrap import Hooks
from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.effect import Task
from leasehold.domain.lease import fence_of
from leasehold.domain.manifest import Manifest
from leasehold.registry.gates import GateEntry
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import claim_step
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step
from leasehold.services.adopt_runs import look_at_blocked
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.reporting import Facts
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.handler import handlers
from tests.worlds.engines import OpenEngine

pytestmark = pytest.mark.one_store

LATER = "handler_that_is_deployed"


def count(ctx: StepContext, given: list[str]) -> list[str]:
    """Note the call."""
    return [*given, ctx.step_type]


class Tasks:
    """A queue that keeps what it gets, in order."""

    def __init__(self) -> None:
        self.waiting: deque[Task] = deque()

    def create(self, task: Task) -> None:
        self.waiting.append(task)

    def exists(self, task: Task) -> bool:
        return task in self.waiting


#: The calls that were made, and paid.
MADE: list[str] = []


def pay(what: str) -> str:
    """Return something that was paid for."""
    MADE.append(what)
    return what


def refuses_what_is_short(ctx: Any, output: list[str]) -> None:
    if len(output) < 2:
        raise GatePolicyFailure("short", "It is too short.", "Write more.")


def catalog_of(*names: str, later: str = f"{__name__}:count", gate: str = "") -> Catalog:
    paths = {"write": later}
    steps = [
        StepDispatchEntry(
            step_type=name,
            handler=paths.get(name, f"{__name__}:count"),
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
            gates=("judge",) if gate and name == names[-1] else (),
        )
        for name in names
    ]
    gates = [GateEntry(name="judge", check=gate)] if gate else []
    return Catalog(
        Registry("dispatch", steps),
        Registry("pipelines", [PipelineEntry(name="report", steps=names)]),
        Registry("gates", gates),
    )


@pytest.fixture
def opened(open_engine: OpenEngine) -> Callable[..., tuple[Engine, list[Facts]]]:
    """Starts a process of a version, which has what it logs beside it."""

    def start(catalog: Catalog, tasks: Tasks) -> tuple[Engine, list[Facts]]:
        logged: list[Facts] = []
        return open_engine(catalog, tasks=tasks, hooks=Hooks(report=logged.append)), logged

    return start


@contextmanager
def deployed(folder: Path, source: str) -> Iterator[None]:
    """Deploy a module in place of the one before, as a new process would find it."""
    (folder / f"{LATER}.py").write_text(source)
    sys.modules.pop(LATER, None)
    for cached in vars(handlers).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()
    sys.path.insert(0, str(folder))
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = dont_write
        sys.path.remove(str(folder))
        sys.modules.pop(LATER, None)


def deliver(tasks: Tasks, *engines: Engine) -> list[str]:
    """Deliver all tasks, in turn to each engine; one that is not taken is delivered again."""
    outcomes, turn = [], 0
    while tasks.waiting:
        task = tasks.waiting.popleft()
        engine = engines[turn % len(engines)]
        turn += 1
        outcome = execute_step(engine, Hint(task.run_id, task.generation))
        outcomes.append(outcome.word)
        if outcome == "step_unknown":
            tasks.waiting.append(task)
    return outcomes


def shown(engine: Engine, run_ids: Sequence[str]) -> list[Manifest]:
    return [get_run(engine, run_id) for run_id in run_ids]


def started(engine: Engine) -> str:
    return start_run(engine, StartRequest("report", [])).manifest.run_id


GOOD = f"from {__name__} import count as run\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import a_forgotten_package\n" + GOOD, "handler_unavailable"),
        ("def run(ctx, given: dict) -> dict: return given\n", "input_mismatch"),
    ],
    ids=["forgotten package", "changed model"],
)
def test_eight_of_eight_runs_survive_a_wrong_deploy(
    opened: Any, tmp_path: Path, source: str, code: str
) -> None:
    """One line for each, no retry used, and what was done before stays done."""
    tasks, catalog = Tasks(), catalog_of("read", "write", later=f"{LATER}:run")
    with deployed(tmp_path, GOOD):
        before, _ = opened(catalog, tasks)
        run_ids = [started(before) for _ in range(8)]
    with deployed(tmp_path, source):
        engine, logged = opened(catalog, tasks)
        deliver(tasks, engine)
        blocked = shown(engine, run_ids)
        again, said_again = opened(catalog, tasks)
        look_at_blocked(again)
        deliver(tasks, again)
    with deployed(tmp_path, GOOD):
        right, _ = opened(catalog, tasks)
        for run_id in run_ids:
            assert get_run(right, run_id).status == "BLOCKED"
        look_at_blocked(right)
        deliver(tasks, right)

    assert [run.block.code for run in blocked if run.block] == [code] * 8
    lines = [facts for facts in (*logged, *said_again) if facts["event"] == "STEP_BLOCKED"]
    assert sorted(facts["runId"] for facts in lines) == sorted(run_ids)
    for run in shown(right, run_ids):
        assert (run.status, run.steps["write"].output) == ("COMPLETED", '["read","write"]')
        assert (run.position.attempts.ended, run.steps["write"].attempts.ended) == (0, 0)


def test_a_gate_that_cannot_be_imported_costs_no_second_call(opened: Any, tmp_path: Path) -> None:
    """The output was paid for: it is kept, and only the gate is asked once that can be done."""
    calls = tmp_path / "calls"
    calls.touch()
    handler = (
        f"import pathlib\nfrom {__name__} import count\n"
        f"calls = pathlib.Path({str(calls)!r})\n"
        "def run(ctx, given: list) -> list:\n"
        "    calls.write_text(calls.read_text() + 'x')\n"
        "    return count(ctx, given)\n"
    )
    tasks, gate = Tasks(), f"{LATER}:judge"
    catalog = catalog_of("read", "write", later=f"{LATER}:run", gate=gate)
    whole = handler + "def judge(ctx, output): assert output\n"
    with deployed(tmp_path, whole):
        before, _ = opened(catalog, tasks)
        run_id = started(before)
    with deployed(tmp_path, handler):
        engine, _ = opened(catalog, tasks)
        deliver(tasks, engine)
        (blocked,) = shown(engine, [run_id])
    with deployed(tmp_path, whole):
        right, _ = opened(catalog, tasks)
        look_at_blocked(right)
        deliver(tasks, right)

    assert blocked.block is not None
    assert blocked.block.code == "handler_unavailable"
    assert "has no 'judge'" in blocked.block.finding
    (healed,) = shown(right, [run_id])
    assert (healed.status, healed.steps["write"].output) == ("COMPLETED", '["read","write"]')
    assert calls.read_text() == "x"


@pytest.mark.each_store
def test_tasks_that_come_to_two_versions_in_turn_are_taken_by_who_knows_the_step(
    opened: Any,
) -> None:
    """Split traffic, forward and back: no run is blocked, and no output is lost."""
    tasks = Tasks()
    old, _ = opened(catalog_of("read", "write"), tasks)
    new, _ = opened(catalog_of("read", "polish", "write"), tasks)
    run_ids = [started(engine) for engine in (old, new) * 4]

    forward = deliver(tasks, old, old, new)
    run_ids += [started(engine) for engine in (new, old) * 4]
    back = deliver(tasks, new, old, old)

    assert "step_unknown" in forward
    assert "step_unknown" in back
    assert "blocked" not in (*forward, *back)
    for run in shown(new, run_ids):
        steps = [f'"{step}"' for step in run.plan]
        assert (run.status, run.steps["write"].output) == ("COMPLETED", f"[{','.join(steps)}]")
        assert sum(record.attempts.ended for record in run.steps.values()) == 0
        assert run.position.dispatch.queue == "write", "with settings of its own"


@pytest.mark.parametrize(
    ("output", "ends"), [('["read","write"]', "COMPLETED"), ('["read"]', "BLOCKED")]
)
def test_a_remote_output_that_comes_to_a_version_without_the_step_is_judged_by_one_that_has_it(
    opened: Any, output: str, ends: str
) -> None:
    """A proxy before servers that are replaced one after the other passes it to any of them."""
    tasks = Tasks()
    gate = f"{__name__}:refuses_what_is_short"
    new, _ = opened(catalog_of("read", "write", later="remote", gate=gate), tasks)
    old, _ = opened(catalog_of("read"), tasks)
    run_id = started(new)
    deliver(tasks, new)
    claimed = claim_step(new, "write", "vm-1").manifest
    worker = LeaseCredentials(run_id, fence_of(claimed))

    answer = complete_step(old, worker, output, "SUCCESS")
    again = complete_step(new, worker, output, "SUCCESS")
    outcomes = deliver(tasks, old, new)

    assert [answer.outcome.word, again.outcome.word] == ["released"] * 2
    assert "step_unknown" in outcomes
    (run,) = shown(new, [run_id])
    assert (run.status, run.steps["write"].output) == (ends, output)
    assert run.steps["write"].attempts.failed == 0


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("ctx.once('b', pay, 'b', on_unknown='perhaps')", "allowed: repeat, ask or fail"),
        ("ctx.once('b', pay, 7)", "what of pay is 'int'; allowed: what it is annotated as"),
        ("ctx.once('b', pay)", "missing a required argument: 'what'"),
        ("ctx.once('b', lambda: object())", "cannot be kept as JSON"),
        ("ctx.once('a', pay, 'another')", "stands for another call"),
        ("ctx.once('', pay, 'b')", "a text of 1 to 128 printable characters"),
        ("ctx.map(pay, ['b'], at_once=0)", "at_once is '0'; allowed: a whole number from 1"),
        ("ctx.checkpoint(1, object())", "partial_results is"),
        ("ctx.checkpoint('many', [])", "iteration_count is"),
        ("ctx.progress('half')", "fraction is 'str'; allowed: a share from 0 to 1"),
        ("ctx.spend(usd='much')", "allowed: a number of dollars"),
        ("ctx.artifacts.put('../x', b'')", "Artifact name"),
        ("ctx.output_of('nothing')", "allowed: first"),
    ],
)
def test_a_mistake_of_a_handler_keeps_what_was_paid_and_heals_with_other_code(
    opened: Any, tmp_path: Path, mistake: str, says: str
) -> None:
    source = (
        f"from {__name__} import pay\n"
        "def run(ctx, given: list[str]) -> list[str]:\n"
        "    paid = ctx.once('a', pay, 'a')\n"
    )
    MADE.clear()
    tasks = Tasks()
    with deployed(tmp_path, f"{source}    {mistake}\n    return [paid]\n"):
        engine, _ = opened(catalog_of("first", "write", later=f"{LATER}:run"), tasks)
        run_id = started(engine)
        deliver(tasks, engine)
        blocked = get_run(engine, run_id)
    with deployed(tmp_path, f"{source}    return [*given, paid]\n"):
        engine, _ = opened(catalog_of("first", "write", later=f"{LATER}:run"), tasks)
        look_at_blocked(engine)
        deliver(tasks, engine)
        healed = get_run(engine, run_id)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "handler_mistake")
    assert says in blocked.block.finding
    assert blocked.position.attempts.failed == 0
    assert (healed.status, healed.steps["write"].output) == ("COMPLETED", '["first","a"]')
    assert MADE == ["a"]


#: Pays for two calls in two attempts, and then is done.
AGENT = (
    f"from {__name__} import pay\n"
    "def run(ctx, given: list[str]) -> list[str]:\n"
    "    paid = [ctx.once('a', pay, 'a')]\n"
    "    if ctx.attempt == 1:\n"
    "        ctx.continue_later()\n"
    "    return [*given, *paid, ctx.once('b', pay, 'b')]\n"
)


@pytest.mark.parametrize(
    ("source", "names", "code", "says"),
    [
        (
            f"import leasehold.integrations.langgraph\n{AGENT}",
            ("first", "write"),
            "handler_unavailable",
            "leasehold.integrations.langgraph needs langgraph, which is not installed",
        ),
        (AGENT, ("first", "compose"), "step_unknown", "has the step 'write'"),
    ],
    ids=["without the package of an integration", "with the step under another name"],
)
def test_a_deploy_in_the_middle_of_an_agent_keeps_what_was_paid_and_heals(
    opened: Any, tmp_path: Path, source: str, names: tuple[str, ...], code: str, says: str
) -> None:
    MADE.clear()
    tasks, catalog = Tasks(), catalog_of("first", "write", later=f"{LATER}:run")
    with deployed(tmp_path, AGENT):
        engine, _ = opened(catalog, tasks)
        run_id = started(engine)
        while get_run(engine, run_id).steps["write"].attempts.continued == 0:
            task = tasks.waiting.popleft()
            execute_step(engine, Hint(task.run_id, task.generation))
    with deployed(tmp_path, source):
        wrong, _ = opened(catalog_of(*names, later=f"{LATER}:run"), tasks)
        blocked = blocked_in(wrong, run_id, tasks)
    with deployed(tmp_path, AGENT):
        right, _ = opened(catalog, tasks)
        look_at_blocked(right)
        deliver(tasks, right)
        healed = get_run(right, run_id)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", code)
    assert says in blocked.block.finding
    assert (healed.status, healed.steps["write"].output) == ("COMPLETED", '["first","a","b"]')
    assert (MADE, healed.steps["write"].attempts.failed) == (["a", "b"], 0)


def blocked_in(engine: Engine, run_id: str, tasks: Tasks) -> Manifest:
    """The run once a version has found that it cannot run it."""
    task = tasks.waiting.popleft()
    outcome = execute_step(engine, Hint(task.run_id, task.generation))
    if outcome == "step_unknown":  # left to others for the grace

        def at_alarm(run: Manifest, now: datetime) -> Change:
            return lifecycle.on_alarm(
                run,
                now + timedelta(hours=1),
                rules=engine.dispatch_rules(),
                generation=run.position.dispatch.generation,
                in_queue=False,
            )

        engine.commit(run_id, at_alarm)
    return get_run(engine, run_id)
