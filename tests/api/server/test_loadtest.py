"""`leasehold loadtest` against a real server: figures under concurrency, and a clean end."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.bundles import Api
from tests.worlds.servers import servers
from tests.worlds.shell import Shell, only_line

CATALOG = "tests.worlds.catalogs.bundle"
STEPS = ("one", "two", "three")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def api(folder: Path) -> Iterator[Api]:
    """A server of four workers."""
    with servers(folder) as begin:
        yield begin(PIPELINE_MAX_RETRIES="0")[1]


@pytest.fixture
def shell(tmp_path: Path, folder: Path) -> Shell:
    """Commands in another folder, on the store of the server."""
    settings = {
        "LEASEHOLD_CATALOG": CATALOG,
        "LEASEHOLD_STORE": f"sqlite:///{folder / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
        "BUNDLE_TEST_FOLDER": str(folder),
        "PIPELINE_DISPATCH_GRACE_S": "1",  # as the server has it, which else looks by its own
    }
    return Shell(tmp_path, settings)


def runs_of(api: Api, label: str) -> list[Any]:
    return list(api.call(f"/runs?label={label}&limit=1000")["runs"])


def test_each_step_is_measured_under_each_concurrency_and_has_a_budget_from_it(
    shell: Shell, api: Api
) -> None:
    words = ("loadtest", "notes", "--rate", "20", "--concurrency", "1,4", "--duration", "1s")

    done = shell.run(*words, "--input", '{"n": 1}', "--json", "--url", api.url)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["pipeline"], answer["rate"], answer["interrupted"]) == ("notes", 20, False)
    one, four = answer["levels"]
    assert (one["concurrency"], four["concurrency"]) == (1, 4)
    for level in (one, four):
        assert level["ends"] == {"completed": level["started"]}
        assert (level["live"], level["problem"]) == (0, None)
        assert 0 < level["startsASecond"] <= 20
        for step in STEPS:
            phases = [each for each in level["phases"] if each["step"] == step]
            assert {each["phase"] for each in phases} == {"bootstrap", "execution"}
            for phase in ("bootstrap", "execution"):
                counted = [each["attempts"] for each in phases if each["phase"] == phase]
                assert sum(counted) == level["started"]
        for each in level["phases"]:
            assert each["p50S"] <= each["p95S"] <= each["p99S"] <= each["maxS"]
            assert each["cutOff"] == 0
        assert [each["step"] for each in level["budgets"]] == ["one", "two", "three"]
        assert {each["attempts"] for each in level["budgets"]} == {level["started"]}
    # all under this label, by which they are found, and deleted as the last line says
    assert len(runs_of(api, answer["label"])) == one["started"] + four["started"]
    purge = shlex.split(done.stderr.splitlines()[-1])
    purged = shell.run(*purge[purge.index("purge") :], "--yes")
    assert purged.returncode == 0, purged.stderr
    assert runs_of(api, answer["label"]) == []


def test_a_person_reads_the_same_as_tables(shell: Shell, api: Api) -> None:
    words = ("loadtest", "notes", "--rate", "10", "--concurrency", "2", "--duration", "1s")

    done = shell.run(*words)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "concurrency: 2"
    assert lines[2].startswith("ended: ")
    phases = lines.index("STEP\tPHASE\tRUNS\tN\tCUT\tP50 S\tP95 S\tP99 S\tMAX S")
    budgets = lines.index("STEP\tRUNS\tN\tDEADLINE\tPROPOSED\tEXECUTION")
    assert {line.split("\t")[0] for line in lines[phases + 1 : budgets - 1]} == {*STEPS}
    assert [line.split("\t")[:2] for line in lines[budgets + 1 :]] == [
        ["one", "2"],
        ["three", "2"],
        ["two", "2"],
    ]
    assert "these are the runs: " in done.stderr


def test_ctrl_c_ends_it_with_what_there_is_and_no_more_runs_are_live_than_allowed(
    shell: Shell, api: Api, folder: Path
) -> None:
    hold = folder / "hold-one"
    hold.touch()
    before = len(api.call("/runs?limit=1000")["runs"])
    words = ("loadtest", "notes", "--rate", "100", "--concurrency", "2", "--duration", "10m")

    process = shell.begin(*words, "--json", "--url", api.url)
    try:
        assert process.stderr is not None
        next(line for line in process.stderr if " 2 started, 0 over, 2 live" in line)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        started = api.call("/runs?limit=1000")["runs"]
    finally:
        process.kill()
        hold.unlink()

    answer = json.loads(out)
    (level,) = answer["levels"]
    assert process.returncode == 130
    assert answer["interrupted"] is True
    assert (level["started"], level["live"], level["ends"], level["phases"]) == (2, 2, {}, [])
    assert len(started) - before == 2
    cancel, runs, purge = err.splitlines()[-3:]
    label = f"--label {answer['label']}"
    assert cancel.startswith("not over yet: 2 runs; cancel with: ")
    assert f" batch cancel {label} --limit 1000 --url {api.url}" in cancel
    assert f" runs {label} --url {api.url}" in runs
    assert purge.endswith(f" purge --older-than 0s {label}")
    for run in runs_of(api, answer["label"]):
        api.ended(run["runId"])


def test_runs_that_wait_for_a_person_are_cancelled_before_they_can_be_deleted(
    shell: Shell, api: Api
) -> None:
    """The line that deletes them deleted none, as none of them ever ended."""
    words = ("loadtest", "gated", "--rate", "10", "--concurrency", "2", "--duration", "1s")

    done = shell.run(*words, "--json", "--url", api.url)

    (level,) = json.loads(done.stdout)["levels"]
    assert level["ends"] == {"waiting for a person": level["started"]}
    cancel, _, purge = done.stderr.splitlines()[-3:]
    assert cancel.startswith(f"not over yet: {level['started']} run")
    label = json.loads(done.stdout)["label"]
    for line in (cancel[cancel.index("batch") :], f"{purge[purge.index('purge') :]} --yes"):
        assert shell.run(*shlex.split(line)).returncode == 0
    assert runs_of(api, label) == []


def test_runs_that_fail_are_counted_and_make_the_exit_code_1(shell: Shell, api: Api) -> None:
    words = ("loadtest", "notes", "--rate", "10", "--concurrency", "2", "--duration", "1s")

    done = shell.run(*words, "--input", '{"fail": "two"}', "--json", "--url", api.url)

    assert done.returncode == 1
    (level,) = json.loads(done.stdout)["levels"]
    assert level["ends"] == {"RETRIES_EXHAUSTED": level["started"]}
    assert {each["step"] for each in level["phases"]} == {"one"}
    budgets = {each["step"]: each["proposed"] for each in level["budgets"]}
    assert budgets.get("two") is None, "no attempt of it ended with a result"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nope",), "Pipeline 'nope' is not known; known: "),
        (("notes", "--input", "{"), "'{' is not JSON"),
        (("notes", "--rate", "0"), "'0'; allowed: a number above 0, up to 100"),
        (("notes", "--rate", "-1"), "'-1'; allowed: a number above 0"),
        (("notes", "--rate", "nan"), "'nan'; allowed: a number above 0"),
        (("notes", "--rate", "1e9"), "'1e9'; allowed: a number above 0"),
        (("notes", "--rate", "fast"), "'fast'; allowed: a number above 0"),
        (("notes", "--concurrency", "0"), "'0'; allowed: 1 to 256, or up to 8 such numbers"),
        (("notes", "--concurrency", "1,1"), "'1,1'; allowed: 1 to 256"),
        (("notes", "--concurrency", "1,,2"), "'1,,2'; allowed: 1 to 256"),
        (("notes", "--concurrency", "257"), "'257'; allowed: 1 to 256"),
        (("notes", "--concurrency", "²"), "'²'; allowed: 1 to 256"),
        (("notes", "--duration", "0s"), "'0s'; allowed: a span such as 90s, 15m or 2h, up to 1d"),
        (("notes", "--duration", "900000w"), "'900000w'; allowed: a span"),
        (("notes", "--duration", "1e99"), "'1e99'; allowed: a span"),
    ],
)
def test_bad_input_starts_nothing_and_gets_one_line(
    shell: Shell, api: Api, words: tuple[str, ...], says: str
) -> None:
    before = len(api.call("/runs?limit=1000")["runs"])

    done = shell.run("loadtest", *words, "--url", api.url)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in only_line(done.stderr)
    assert len(api.call("/runs?limit=1000")["runs"]) == before
