"""`leasehold doctor` says what is silently wrong on this machine, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import open_documents
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.doctor.data_folder import kind_in, little_space
from leasehold.doctor.machine import examine_machine
from leasehold.doctor.setup import Setup, lenient_settings, limits
from leasehold.doctor.variables import OF_DEPLOY
from leasehold.domain.stored import Document, Ref, Write
from leasehold.google_clients.clients import EMULATOR
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import SETTINGS
from tests.deploy.doctor.letters import PIPELINES, STEPS
from tests.worlds.emulators import firestore_host
from tests.worlds.ports import own_port
from tests.worlds.shell import LEASEHOLD, Shell, only_line

ROOT = Path(__file__).parents[3]
STORE = ".leasehold/leasehold.db"


def codes(shell: Shell, *words: str, **settings: str) -> list[str]:
    done = shell.run("doctor", *words, "--json", **settings)
    assert done.returncode in {0, 1}, done.stderr
    answer = json.loads(done.stdout)
    assert done.returncode == bool(answer["findings"])
    return [one["code"] for one in answer["findings"]]


def warned(shell: Shell, **settings: str) -> list[str]:
    done = shell.run("doctor", "--json", **settings)
    return [one["code"] for one in json.loads(done.stdout)["warnings"]]


def put(shell: Shell, ref: Ref, document: Document) -> None:
    """Store a document as a person with the file at hand could."""
    documents = SqliteDocuments(shell.folder / STORE, SystemClock())
    documents.transact(ref, lambda _stored, _now: Write(None, document))
    documents.close()


def everything_below(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_in_order_is_one_line_and_nothing_is_made(shell: Shell) -> None:
    before = shell.files()

    done = shell.run("doctor")

    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing found\n", "")
    assert shell.files() == before


def test_a_store_in_order_is_read_and_not_touched(shell: Shell) -> None:
    assert shell.run("start", "letters", "--input", '"x"', "--in-process").returncode == 0
    put(shell, Ref("overrides", "x"), {"timeoutS": 1, "until": "2999-01-01"})
    before = everything_below(shell.folder)

    found = codes(shell)

    assert found == ["override_refused"]  # it is of no step
    assert everything_below(shell.folder) == before


def test_what_check_finds_is_found_in_the_same_words(shell: Shell) -> None:
    (shell.folder / "catalog.py").write_text(
        (shell.folder / "letters.py").read_text().replace("letters:", "nowhere:")
    )
    settings = {"LEASEHOLD_CATALOG": "catalog", "PIPELINE_LEASE_TTL_S": "-1"}

    checked, done = shell.run("check", **settings), shell.run("doctor", **settings)

    assert checked.returncode == done.returncode == 1
    assert len(checked.stdout.splitlines()) > 1
    assert done.stdout == checked.stdout


def test_a_catalog_that_is_missing_keeps_nothing_else_from_being_looked_at(shell: Shell) -> None:
    (shell.folder / ".leasehold").write_text("a file")

    found = codes(shell, LEASEHOLD_CATALOG="nowhere", LEASEHOLD_STROE="x")

    assert found == ["missing_catalog", "unread_variable", "data_folder"]


@pytest.mark.parametrize("linked", ["runs", "runs/r-1"])
def test_a_link_in_the_folder_of_the_artifacts_is_found(shell: Shell, linked: str) -> None:
    """None is followed, so an attempt that needs what is behind it waits until it is gone."""
    outside = shell.folder / "moved"
    outside.mkdir()
    link = shell.folder / "a" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)

    found = shell.run("doctor", LEASEHOLD_ARTIFACTS=f"file://{shell.folder}/a").stdout

    assert f"{link} is a link, and none below the folder of the artifacts is followed" in found
    assert f"rm {link} && mv {outside} {link}" in found


def test_a_slip_in_the_name_of_a_variable_names_the_one_that_was_meant(shell: Shell) -> None:
    done = shell.run("doctor", LEASEHOLD_STROE="s3cret", PIPELINE_GHOST_DEADLINE_S="20")

    slip = "LEASEHOLD_STROE is set, and nothing reads it:"
    of_no_step = "PIPELINE_GHOST_DEADLINE_S is set, and the catalog has no step that reads it."

    assert done.stdout.splitlines() == [
        f"{slip} is LEASEHOLD_STORE meant? Type: unset LEASEHOLD_STROE",
        f"{of_no_step} Type: unset PIPELINE_GHOST_DEADLINE_S",
    ]
    assert "s3cret" not in done.stdout + done.stderr


def test_the_variables_that_are_read_and_those_of_other_programs_are_no_findings(
    shell: Shell,
) -> None:
    name = next(iter(STEPS)).env_overrides.deadline_s

    done = shell.run("doctor", LEASEHOLD_DEBUG="1", PIPELINE_WORKSPACE="/ci", **{name: "1500"})

    assert (done.returncode, done.stdout) == (0, "nothing found\n")
    assert only_line(done.stderr) == (
        "warning: PIPELINE_WORKSPACE is set, and Leasehold does not read it."
    )


DEPLOYED = {
    "LEASEHOLD_STORE": "sqlite:///x.db",
    "LEASEHOLD_TASKS": "cloud-tasks://project/region",
    "LEASEHOLD_FUNCTION_URL": "http://localhost:8080/",
    "LEASEHOLD_TASK_ACCOUNT": "tasks@project.iam.gserviceaccount.com",
    "LEASEHOLD_ALLOW_LOCAL_CHANNELS": "yes",
}


def test_settings_that_no_function_can_work_with_are_found_before_a_deploy(shell: Shell) -> None:
    with_channel = (
        (shell.folder / "letters.py").read_text()
        + '\nfrom leasehold import LogChannel\nCHANNELS = Registry("channels", '
        '[LogChannel(name="log")])\n'
    )
    (shell.folder / "told.py").write_text(with_channel)

    found = codes(shell, LEASEHOLD_CATALOG="told", **DEPLOYED)

    assert found == ["bad_setting", "events_in_process", "function_url", "local_channels"]


def test_waits_whose_announcements_have_no_link_are_warned_of(shell: Shell) -> None:
    """A row of the table gives the secret; where it is set here, it is known as well."""
    text = (shell.folder / "letters.py").read_text()
    told = text + (
        "\nfrom leasehold import PipelineEntry, SlackChannel, Wait\n"
        'CHANNELS = Registry("channels", [SlackChannel(name="team", url_variable="TEAM_URL")])\n'
        'PIPELINES = Registry("pipelines", [*PIPELINES, PipelineEntry(name="asked", '
        'steps=(next(iter(STEPS)).step_type, Wait("approval")))])\n'
    )
    (shell.folder / "told.py").write_text(told)
    settings = DEPLOYED | {"LEASEHOLD_CATALOG": "told", "LEASEHOLD_PUBLIC_URL": "https://x.example"}

    without = shell.run("doctor", **settings).stderr
    with_one = warned(shell, LEASEHOLD_LINK_SECRET="-".join(["of", "links"] * 4), **settings)

    (line,) = [line for line in without.splitlines() if "signal" in line]
    assert line.startswith("warning: Runs of asked wait for a signal, and their announcements")
    assert 'secrets=(Secret("LEASEHOLD_LINK_SECRET"),)' in line
    assert "no_link_secret" not in with_one


def test_an_override_that_does_not_hold_is_found_and_one_that_is_over_is_warned_of(
    shell: Shell,
) -> None:
    step, other = [entry.step_type for entry in STEPS][:2]
    put(shell, Ref("overrides", step), {"timeoutS": 1799, "until": "2999-01-01"})
    put(shell, Ref("overrides", other), {"timeoutS": 1, "until": "2001-01-01"})

    assert codes(shell) == ["override_refused"]
    assert warned(shell) == ["override_over"]


def test_a_schedule_whose_run_cannot_be_started_is_found(shell: Shell) -> None:
    """Nothing else says so: the sweep tries again, and no run is in any list."""
    timed = (
        "\nfrom leasehold import ScheduleEntry\n"
        'SCHEDULES = Registry("schedules", [ScheduleEntry("nightly", pipeline="letters", '
        'cron="0 6 * * *", tz="UTC", input="x")])\n'
    )
    (shell.folder / "timed.py").write_text((shell.folder / "letters.py").read_text() + timed)
    stored = {
        "name": "nightly",
        "cron": "0 6 * * *",
        "tz": "UTC",
        "starting": "2026-01-02T06:00:00Z",
    }
    put(shell, Ref("schedules", "nightly"), {**stored, "problem": "no pipeline 'gone'."})

    shown = shell.run("doctor", LEASEHOLD_CATALOG="timed").stdout

    assert "schedule nightly that is due since 2026-01-02T06:00:00Z could not be started" in shown
    assert "tries again: no pipeline 'gone'." in shown


LEARNS = {"PIPELINE_LIMIT_STRATEGY": "propose"}


@pytest.mark.parametrize(
    ("derived_ago", "ended_ago", "is_found"),
    [(None, 4, True), (None, 2, False), (9, 5, True), (9, 8, False), (1, 0, False)],
    ids=["never", "too soon to say", "no more", "nothing to derive from since", "in order"],
)
def test_limits_that_are_to_be_derived_and_are_not_are_warned_of(
    shell: Shell, derived_ago: int | None, ended_ago: int, *, is_found: bool
) -> None:
    """No error is anywhere: a job is paused, or no server runs, and the limits stay."""
    now = SystemClock().now()
    ended = {"endedAt": now - timedelta(hours=ended_ago), "stepTypes": ["send"]}
    put(shell, Ref("ledger", "r-1"), ended)
    if derived_ago is not None:
        limit = {"totalS": 900, "executionS": 600, "timeoutS": 600}
        limits = dict.fromkeys(("declared", "proposed", "applied"), limit)
        derived = {"derivedAt": now - timedelta(hours=derived_ago), "windowDays": 7, **limits}
        put(shell, Ref("budgets", "send"), {"stepType": "send", "strategy": "propose", **derived})

    assert warned(shell, **LEARNS) == ["limits_not_derived"] * is_found
    assert warned(shell) == []


def test_what_is_to_be_typed_about_a_name_of_a_stranger_is_one_word(shell: Shell) -> None:
    put(shell, Ref("overrides", "x; id #"), {"timeoutS": 1, "until": "2999-01-01"})

    line = only_line(shell.run("doctor").stdout)

    assert line.endswith("Type: leasehold override 'x; id #' --clear")


def test_measured_cold_starts_make_a_proposal_and_no_finding(shell: Shell) -> None:
    """Other writers of the ledger break nothing."""
    ended = {"endedAt": datetime(2026, 1, 1, 13, tzinfo=UTC)}
    measured = {"coldStart": True, "bootstrapSeconds": 9, "startedAt": "2026-01-01T12:00:00Z"}
    for number in range(25):
        put(shell, Ref("ledger", f"r-{number}"), ended | {"steps": {"send": measured}})
    put(shell, Ref("ledger", "r-x"), ended | {"steps": [1]})
    odd = {"a": 1, "b": measured | {"bootstrapSeconds": "9"}}
    put(shell, Ref("ledger", "r-y"), ended | {"steps": odd})

    done = shell.run("doctor")

    assert (done.returncode, done.stdout) == (0, "nothing found\n")
    assert only_line(done.stderr).startswith(
        "proposal: min_instances=12 in the row execute_step of deployment.py (now 0): 95% of "
        "25 cold starts took up to 9.0 s"  # 12 of them: no more than there may be
    )


def test_a_store_of_firestore_is_asked_for_its_overrides_and_its_time(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, project = firestore_host(), f"doctor-{uuid.uuid4().hex[:12]}"  # noqa: TID251
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", host)
    documents = open_documents(f"firestore://{project}/(default)", SystemClock())
    documents.transact(Ref("overrides", "send"), lambda *_: Write(None, {"timeoutS": 1}))
    documents.transact(Ref("runs", "r-1"), lambda _, now: Write(None, {"createdAt": now}))
    documents.close()
    settings = {
        "LEASEHOLD_STORE": f"firestore://{project}/(default)",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",
        "FIRESTORE_EMULATOR_HOST": host,
    }

    # the run has no more than a time: nothing can read it
    assert codes(shell, **settings) == ["override_refused", "run_not_in_order"]


def test_a_clock_that_was_put_back_is_found(shell: Shell) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - the machine's own
    put(shell, Ref("runs", "r-1"), {"createdAt": at})  # which nothing can read

    assert codes(shell) == ["clock", "run_not_in_order"]


def test_a_store_of_a_newer_version_is_found_and_left_as_it_is(shell: Shell) -> None:
    put(shell, Ref("runs", "r-1"), {})
    with sqlite3.connect(shell.folder / STORE) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = everything_below(shell.folder)

    assert codes(shell) == ["store_version"]
    assert everything_below(shell.folder) == before


def test_damage_is_found(shell: Shell) -> None:
    for number in range(30):
        put(shell, Ref("runs", f"r-{number}"), {"pipeline": "x" * 2000})
    file = shell.folder / STORE
    content = bytearray(file.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    file.write_bytes(content)

    assert "store_damaged" in codes(shell)


def test_a_store_that_is_written_meanwhile_is_read_with_its_log(shell: Shell) -> None:
    documents = SqliteDocuments(shell.folder / STORE, SystemClock())
    documents.transact(Ref("overrides", "ghost"), lambda *_: Write(None, {"timeoutS": 1}))
    try:
        assert (shell.folder / f"{STORE}-wal").stat().st_size > 0
        assert codes(shell) == ["override_refused"]
    finally:
        documents.close()


@pytest.mark.parametrize("end", ["-wal", "-shm"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_that_is_a_link_is_found(shell: Shell, end: str, is_there: bool) -> None:
    """SQLite does not follow it, so that nothing works, whatever it leads to."""
    put(shell, Ref("runs", "r-1"), {})
    if is_there:
        (shell.folder / "moved").touch()
    (shell.folder / f"{STORE}{end}").unlink(missing_ok=True)
    (shell.folder / f"{STORE}{end}").symlink_to(shell.folder / "moved")

    assert "linked_log" in codes(shell)


def test_a_file_system_that_is_mounted_read_only_is_no_matter_of_owners(shell: Shell) -> None:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    mounts = [line.split() for line in lines]
    places = [one[1] for one in mounts if "ro" in one[3].split(",") and Path(one[1]).is_dir()]
    if not places:
        pytest.skip("nothing is mounted read-only here")

    found = shell.run("doctor", LEASEHOLD_STORE=f"sqlite:///{places[0]}/runs.db")

    assert "is mounted read-only" in found.stdout
    assert "remount,rw" in found.stdout
    assert "chown" not in found.stdout


def test_a_log_without_its_file_is_found(shell: Shell) -> None:
    (shell.folder / ".leasehold").mkdir()
    (shell.folder / f"{STORE}-wal").write_bytes(b"x")

    assert codes(shell) == ["store_gone"]


def test_a_store_of_the_folder_above_is_found(shell: Shell) -> None:
    put(shell, Ref("runs", "r-1"), {})
    below = shell.folder / "below"
    below.mkdir()

    found = Shell(below, shell.settings | {"PYTHONPATH": str(shell.folder)}).run("doctor")

    assert found.returncode == 1
    assert only_line(found.stdout) == (
        f"There is no store in this folder, and there is one at {shell.folder / STORE}. "
        f"Type: cd {shell.folder}"
    )


def test_a_store_and_artifacts_that_begin_at_other_places_are_found(shell: Shell) -> None:
    address = f"sqlite:///{shell.folder}/x.db"

    assert codes(shell, LEASEHOLD_STORE=address) == ["two_folders"]
    assert codes(shell, LEASEHOLD_ARTIFACTS=f"file://{shell.folder}/a") == ["two_folders"]


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_emulators_that_do_not_answer_or_are_half_of_a_pair_are_found(
    shell: Shell, port: int
) -> None:
    queue = DEPLOYED | {"LEASEHOLD_FUNCTION_URL": "https://x.run.app", "LEASEHOLD_STORE": ""}
    del queue["LEASEHOLD_STORE"], queue["LEASEHOLD_ALLOW_LOCAL_CHANNELS"]
    half = {**queue, "CLOUD_TASKS_EMULATOR_URL": f"http://127.0.0.1:{port}"}
    half |= {
        "LEASEHOLD_EVENTS": "pubsub://p/topic",
        "PUBSUB_EMULATOR_HOST": f"127.0.0.1:{own_port()}",
    }
    left = codes(shell, **half)

    assert left == ["emulator_left_over", "emulator_left_over", "emulator_silent"]
    done = shell.run(
        "doctor", LEASEHOLD_ARTIFACTS="gs://b/p", STORAGE_EMULATOR_HOST="u:s3cret@localhost:1"
    )
    assert "allowed: http://HOST:PORT" in done.stdout
    assert codes(shell, FIRESTORE_EMULATOR_HOST="localhost:1") == []  # the store is SQLite


def test_runs_in_an_emulator_and_tasks_at_google_are_found() -> None:
    environ = DEPLOYED | {
        "LEASEHOLD_STORE": "firestore://project/database",
        "FIRESTORE_EMULATOR_HOST": "nowhere",
    }
    found = [one.code for one in examine_machine(environ | {"LEASEHOLD_CATALOG": "none"})[1]]

    assert {"half_emulated", "emulator_address"} <= set(found)


DIGEST = """
        FunctionEntry(
            "send_digest",
            "tells somebody each morning",
            Trigger.SCHEDULE,
            (Use.DOCUMENTS,),
            timeout=timedelta(minutes=1),
            memory_mib=512,
            concurrency=1,
            max_instances=1,
            schedule="0 6 * * *",
        ),
"""


def test_a_row_without_its_file_is_found_in_a_bundle(shell: Shell) -> None:
    (shell.folder / "functions").mkdir()
    table = (ROOT / "deployment.py").read_text().replace("    ]\n)\n", f"{DIGEST}    ]\n)\n", 1)
    (shell.folder / "deployment.py").write_text(table)
    for entry in FUNCTIONS:
        (shell.folder / f"functions/{entry.name}.py").write_text(f"def {entry.name}(request): ...")
    (shell.folder / "functions/extra.py").write_text("x = 1")
    last = list(FUNCTIONS)[-1]
    (shell.folder / f"functions/{last.name}.py").write_text("def other(): ...")

    assert codes(shell) == [
        "function_without_row",
        "function_without_entry",
        "function_without_file",
    ]


def test_a_table_without_what_derives_limits_is_found_where_a_step_has_them_derived(
    shell: Shell,
) -> None:
    """A table of an earlier version has no such row."""
    table = (ROOT / "deployment.py").read_text()
    table += '\nFUNCTIONS = FunctionTable(f for f in FUNCTIONS if f.name != "derive_budgets")\n'
    (shell.folder / "deployment.py").write_text(table)

    assert codes(shell, **LEARNS) == ["limits_without_function"]
    assert codes(shell) == []


def test_a_function_that_has_less_time_than_a_step_is_found() -> None:
    row = FunctionEntry(
        "execute_step",
        "short",
        Trigger.TASKS,
        (),
        timeout=timedelta(seconds=60),
        memory_mib=512,
        concurrency=1,
        max_instances=1,
    )
    setup = Setup({}, lenient_settings({}), Catalog(STEPS, PIPELINES))

    found = list(limits(replace(setup, functions=FunctionTable([row]))))

    assert {one.code for one in found} == {"function_timeout"}
    assert len(found) == len(STEPS)
    assert list(limits(setup)) == []


def test_a_store_that_hangs_keeps_nothing_else_from_being_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe hangs when it is opened, as a file on a mount that is dead does."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # the catalog names `letters`
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".leasehold").mkdir()
    os.mkfifo(tmp_path / STORE)
    environ = {"LEASEHOLD_CATALOG": "tests.deploy.doctor.letters", "LEASEHOLD_STROE": "x"}

    found = examine_machine(environ, within_s=3.0)[1]

    os.close(os.open(tmp_path / STORE, os.O_RDWR))  # whoever waits for a writer reads its end
    assert found[0].code == "unread_variable"
    hanging = "The file of the store, what the store says, the live runs, the ledger"
    assert [one.message for one in found[1:]] == [
        f"{hanging} could not be looked at: no answer within 3 s."
    ]


def test_a_slip_that_hides_the_catalog_is_found(shell: Shell) -> None:
    done = shell.run("doctor", LEASEHOLD_CATALOG="", LEASEHOLD_CATALOGUE="letters", LEASEHOLD_X="x")

    assert "LEASEHOLD_CATALOGUE is set, and nothing reads it: is LEASEHOLD_CATALOG" in done.stdout
    assert "LEASEHOLD_X" not in done.stdout  # a channel of the catalog may read it


HANGS = "import threading\nthreading.Event().wait(600)\n"
TRIES_FOR_EVER = """
import threading
while True:
    try:
        threading.Event().wait(600)
    except:
        threading.Event().wait(600)
"""


@pytest.mark.parametrize("end", ["import sys\nsys.exit(0)\n", "import os\nos._exit(0)\n"])
def test_a_catalog_that_ends_the_process_ends_no_look(shell: Shell, end: str) -> None:
    """With exit 0 and no words it would count as all in order."""
    (shell.folder / "script.py").write_text(end)

    done = shell.run("doctor", LEASEHOLD_CATALOG="script")

    assert done.returncode == 1
    assert done.stdout.startswith("script.py:2: LEASEHOLD_CATALOG 'script' cannot be used: ")


@pytest.mark.parametrize("text", [HANGS, TRIES_FOR_EVER])
def test_a_catalog_that_hangs_is_left(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging_catalog.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    found = examine_machine({"LEASEHOLD_CATALOG": "hanging_catalog"}, within_s=0.5)[1]

    assert found[0].message == (
        "The catalog could not be checked: to import its modules takes longer than 0.5 s."
    )


def test_a_catalog_that_raises_a_base_exception_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_catalog.py").write_text("raise BaseException('one\\ntwo')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    found = examine_machine({"LEASEHOLD_CATALOG": "raising_catalog"})[1]

    assert found[0].message == (
        "LEASEHOLD_CATALOG 'raising_catalog' cannot be used: importing it raised "
        "BaseException: one two, at raising_catalog.py:1 (<module>)."
    )


def test_a_thread_that_the_catalog_started_is_not_waited_for(shell: Shell) -> None:
    waits = "threading.Thread(target=threading.Event().wait).start()"
    (shell.folder / "threads.py").write_text(f"from letters import *\nimport threading\n{waits}\n")

    done = shell.process(*LEASEHOLD, "doctor", LEASEHOLD_CATALOG="threads")

    assert done.stdout == "nothing found\n"


def test_a_full_disk_is_found() -> None:
    full = os.statvfs_result((4096, 4096, 10_000, 10, 10, 5000, 5000, 5000, 0, 255))
    no_files = os.statvfs_result((4096, 4096, 10**6, 10**6, 10**6, 5000, 3, 3, 0, 255))

    assert [one.code for one in little_space(Path("/data"), full)] == ["little_space"]
    assert [one.repair for one in little_space(Path("/data"), no_files)] == ["df -i /data"]


def test_the_file_system_of_a_path_is_that_of_the_mount_that_lies_over_it() -> None:
    mounts = (
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "40 22 0:50 / /mnt/our\\040files rw shared:2 - nfs4 server:/files rw\n"
        "broken line\n"
    )

    assert kind_in(mounts, Path("/mnt/our files/.leasehold")) == "nfs4"
    assert kind_in(mounts, Path("/mnt/our")) == "ext4"
    assert kind_in("", Path("/")) == ""


def test_the_variables_that_a_deploy_reads_are_known() -> None:
    """Else who has set one, as docs/deploy.md says, is told that nothing reads it."""
    sources = [
        path.read_text()
        for path in (ROOT / "shared/leasehold").rglob("*.py")
        if "deploy" in path.parts[-3:]
    ]

    read = set(re.findall(r'"(LEASEHOLD_[A-Z_]+)["=]', "\n".join(sources)))

    assert {"LEASEHOLD_TOKEN", "LEASEHOLD_REGION", "LEASEHOLD_BUILD"} <= read
    assert read <= {*OF_DEPLOY, *SETTINGS.keys(), EMULATOR}
