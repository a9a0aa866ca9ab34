"""`why`, `audit` and `doctor` agree on one situation: none says that all is well beside another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Document, Ref, Write
from leasehold.domain.worker_note import worker_ref
from leasehold.worker.stopping.holder import holder_name, host_name
from tests.worlds.ports import own_port
from tests.worlds.shell import Shell
from tests.worlds.waiting import until

#: Beside those of `letters.py`: a step whose handler can be taken away, and one of remote workers.
FURTHER = """
from leasehold import Child


def step(name, handler):
    limits = {"agent_timeout": timedelta(minutes=10), "dispatch_deadline": timedelta(minutes=15)}
    return StepDispatchEntry(step_type=name, handler=handler, **limits)


further = [step("stamp", "letters:write"), step("print", "remote")]
STEPS = Registry("dispatch", [*STEPS, *further])
envelope = PipelineEntry(name="envelope", steps=("send",))
PIPELINES = Registry(
    "pipelines",
    [
        *PIPELINES,
        *(PipelineEntry(name=name, steps=(name,)) for name in ("stamp", "print")),
        envelope,
        PipelineEntry(name="parcel", steps=("send", Child(envelope.name))),
    ],
)
"""

IN_ORDER = "every run is in order"
NOBODY = "no server works on this store"
AN_HOUR = timedelta(hours=1)


class Project:
    """A project with a store, which a test gets into a situation."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.catalog = shell.folder / "letters.py"
        self.catalog.write_text(self.catalog.read_text() + FURTHER)

    def start(self, pipeline: str = "letters", *words: str) -> str:
        return str(self.shell.json("start", pipeline, "--input", '"x"', *words)["runId"])

    def write(self, ref: Ref, change: Callable[[Document, datetime], Document]) -> None:
        documents = SqliteDocuments(self.shell.folder / ".leasehold/leasehold.db", SystemClock())
        documents.transact(ref, lambda found, now: Write(None, change(dict(found or {}), now)))
        documents.close()

    def a_server_lives(self) -> None:
        def noted(_: Document, now: datetime) -> Document:
            known = {"steps": ["send"], "pipelines": ["letters"]}
            return {"process": "vm-1/7@1", "kind": "serve", "startedAt": now, "seenAt": now} | known

        self.write(worker_ref("vm-1/7@1", "1"), noted)

    def started(self, pipeline: str = "letters") -> str:
        """Return a run that waits beside a server that works."""
        run_id = self.start(pipeline)
        self.a_server_lives()
        return run_id

    def changed(self, change: Callable[[Document, datetime], Document]) -> str:
        run_id = self.started()
        self.write(run_ref(run_id), change)
        return run_id

    def held_by(self, holder: str) -> str:
        def held(run: Document, now: datetime) -> Document:
            ends = now + timedelta(minutes=10)
            lease = {"leaseId": "l", "holder": holder, "acquiredAt": now}
            lease |= {"expiresAt": ends, "maxExpiresAt": ends}
            position = {**run["position"], "lease": lease}
            return {**run, "status": "IN_PROGRESS", "position": position, "alarmAt": ends}

        return self.changed(held)


def in_order(project: Project) -> str:
    return project.started()


def completed(project: Project) -> str:
    return project.start("letters", "--in-process")


def held_by_who_lives(project: Project) -> str:
    return project.held_by("vm-1/7@1")


def nobody_works(project: Project) -> str:
    return project.start()


def held_by_who_is_gone(project: Project) -> str:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = holder_name(host_name(), process.pid)
    process.kill()
    process.communicate()
    return project.held_by(holder)


def overdue(project: Project) -> str:
    return project.changed(lambda run, now: {**run, "alarmAt": now - AN_HOUR})


def overdue_and_nobody_works(project: Project) -> str:
    run_id = project.start()
    project.write(run_ref(run_id), lambda run, now: {**run, "alarmAt": now - AN_HOUR})
    return run_id


def without_alarm(project: Project) -> str:
    return project.changed(lambda run, _: {**run, "alarmAt": None})


def of_a_time_to_come(project: Project) -> str:
    return project.changed(lambda run, now: {**run, "updatedAt": now + AN_HOUR})


def unreadable(project: Project) -> str:
    return project.changed(lambda run, _: {**run, "position": 7})


def never_asked_for(project: Project) -> str:
    return project.started("print")


def never_asked_for_and_nobody_works(project: Project) -> str:
    return project.start("print")


def blocked_and_nobody_works(project: Project) -> str:
    """A real server blocks it, and ends."""
    run_id = project.start("stamp")
    text = project.catalog.read_text()
    project.catalog.write_text(text.replace('"stamp", "letters:write"', '"stamp", "letters:gone"'))
    server = project.shell.begin("serve", "--port", str(own_port()), "--allow-broken")
    try:
        until(lambda: project.shell.json("show", run_id)["status"] == "BLOCKED")
    finally:
        server.terminate()
        server.communicate()
    return run_id


def blocked_by_a_missing_handler(project: Project) -> str:
    run_id = blocked_and_nobody_works(project)
    project.a_server_lives()
    return run_id


def held_while_the_artifacts_are_away(project: Project) -> str:
    completed(project)
    (project.shell.folder / ".leasehold/artifacts").rename(project.shell.folder / "elsewhere")
    return project.held_by("vm-1/7@1")


def with_a_child_pipeline_renamed(project: Project) -> str:
    """Beside it a run that is not in order: the one kept the other from being found."""
    run_id = project.started("parcel")
    without_alarm(project)
    text = project.catalog.read_text()
    project.catalog.write_text(text.replace('name="envelope"', 'name="cover"'))
    return run_id


MISSING_CODES = {"handler_not_found", "live_run_misfit"}

#: What each of the three says: of `why` a part, of `audit` parts, and the codes of the doctor.
SITUATIONS: list[tuple[Callable[[Project], str], str, list[str], set[str]]] = [
    (in_order, "waits for a worker to take attempt 1", [IN_ORDER], set()),
    (completed, "waits for nothing: it is completed", [IN_ORDER], set()),
    (held_by_who_lives, "waits for vm-1/7@1 to finish attempt 1", [IN_ORDER], set()),
    (
        held_while_the_artifacts_are_away,
        "it is not mounted, or it is lost",
        [IN_ORDER, "it is not mounted, or it is lost"],
        {"artifacts_away"},
    ),
    (never_asked_for, "none has ever asked for step print", [IN_ORDER], set()),
    (nobody_works, NOBODY, [IN_ORDER, f"but {NOBODY}"], {"no_server"}),
    (never_asked_for_and_nobody_works, NOBODY, [IN_ORDER, f"but {NOBODY}"], {"no_server"}),
    (held_by_who_is_gone, "is gone", ["holder_gone", "is gone"], {"run_not_in_order"}),
    (overdue, "which was due at", ["overdue"], {"run_not_in_order"}),
    (overdue_and_nobody_works, NOBODY, ["overdue", NOBODY], {"run_not_in_order", "no_server"}),
    (without_alarm, "waits for a repair", ["no_alarm"], {"run_not_in_order"}),
    (of_a_time_to_come, "waits for a repair", ["time_in_future"], {"run_not_in_order"}),
    (
        with_a_child_pipeline_renamed,
        "waits for a worker to take attempt 1",
        ["no_alarm"],
        {"live_run_misfit", "run_not_in_order"},
    ),
    (unreadable, "cannot be read by this version", ["unreadable"], {"run_not_in_order"}),
    (
        blocked_by_a_missing_handler,
        "waits for the code to be put right at step stamp",
        ["but 1 run waits for the code to be put right"],
        MISSING_CODES,
    ),
    (
        blocked_and_nobody_works,
        NOBODY,
        ["but 1 run waits for the code to be put right", f"but {NOBODY}"],
        MISSING_CODES | {"no_server"},
    ),
]


@pytest.mark.parametrize(
    ("situation", "why", "audited", "codes"),
    SITUATIONS,
    ids=[row[0].__name__ for row in SITUATIONS],
)
def test_the_three_say_the_same(
    shell: Shell,
    situation: Callable[[Project], str],
    why: str,
    audited: list[str],
    codes: set[str],
) -> None:
    run_id = situation(Project(shell))

    explained, audit, doctor = (
        shell.run(*words) for words in (("why", run_id), ("audit",), ("doctor", "--json"))
    )

    assert why in explained.stdout + explained.stderr
    for part in audited:
        assert part in audit.stdout + audit.stderr
    findings: list[dict[str, Any]] = json.loads(doctor.stdout)["findings"]
    assert {one["code"] for one in findings} == codes
    assert audit.returncode == ("run_not_in_order" in codes)
    assert (IN_ORDER in audit.stderr) == (audit.returncode == 0)


def test_the_lease_of_who_is_gone_is_ended_by_a_repair(shell: Shell) -> None:
    run_id = held_by_who_is_gone(Project(shell))

    repaired = shell.run("audit", "--repair")

    assert (repaired.returncode, shell.json("show", run_id)["status"]) == (0, "PENDING")
    assert shell.run("audit").returncode == 0
