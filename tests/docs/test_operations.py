"""The commands on the pages for the person on call and for upgrades can be pasted."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold import (
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    testing,
)
from leasehold.api.metrics import metrics_text
from leasehold.domain import explanation
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.registry.dead_letters import DEAD_LETTERS
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import SETTINGS
from leasehold.services.count_runs import Figures, RunCounts
from leasehold.web.serve_api import ROUTES
from tests.worlds.shell import Shell

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("operations", "monitoring", "upgrades")
PAGE = "".join((DOCS / f"{name}.md").read_text() for name in NAMES)
LINES = [
    line.strip()
    for block in re.findall(r"^ *```sh\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("leasehold ") and " dev" not in line]

STEPS = """
from datetime import timedelta

from leasehold import PipelineEntry, PermanentError, Registry, StepDispatchEntry


def ask(ctx, given):
    ctx.artifacts.put("report.md", b"# Report")
    raise PermanentError("no such folder")


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="steps:ask",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        )
        for name in ("ask", "extraction")
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="review", steps=("ask",))])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in which a run with a file was given up."""
    folder = tmp_path_factory.mktemp("on-call")
    (folder / "steps.py").write_text(STEPS)
    done = shell(folder, "leasehold start review --label team:a --in-process", "")
    assert done.returncode == 1, done.stderr
    return folder


def shell(folder: Path, line: str, run_id: str) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell does, with our own program for `leasehold`.

    That is called in this process: to start one takes a hundred times as long.
    """
    environ = {"LEASEHOLD_CATALOG": "steps", "RUN": run_id}
    said = problems = ""
    if line.startswith("leasehold "):
        command, mark, line = re.fullmatch(r"([^|>]*)([|>]?)(.*)", line).groups()
        words = shlex.split(command.replace("$RUN", run_id), comments=True)
        done = Shell(folder, environ).run(*words[1:])
        if not mark:
            return done
        said, problems = done.stdout, done.stderr
        line = f"cat > {line}" if mark == ">" else line
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=os.environ | environ,
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(line, done.returncode, done.stdout, problems + done.stderr)


@pytest.fixture(scope="module")
def run_id(folder: Path) -> str:
    """The run that was given up."""
    found = shell(folder, "leasehold runs --dead-lettered --json", "")
    return str(json.loads(found.stdout)["runs"][0]["runId"])


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(folder: Path, run_id: str, line: str) -> None:
    """A state may forbid it, with 1; the wrong words would be 2."""
    if "jq" in line and shutil.which("jq") is None:
        pytest.skip("jq is not installed")

    (folder / "edited.json").write_text('"edited"')  # what an editor left there

    done = shell(folder, line, run_id)

    assert done.returncode in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr
    if "| jq" in line:
        assert done.returncode == 0, done.stderr


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_line_for_the_log_finds_the_dead_letter(tmp_path: Path) -> None:
    (line,) = (line for line in LINES if line.startswith("jq ") and "DEAD_LETTERED" in line)
    facts = {
        "event": "STEP_DEAD_LETTERED",
        "at": "2026-01-01T00:00:00+00:00",
        "severity": "ERROR",
        "reason": "PERMANENT_FAILURE",
        "runId": "r-1",
        "lastStep": "ask",
    }
    (tmp_path / "dev.log").write_text(f"ready\n7\n{json.dumps(facts)}\n{{}}\n")

    done = shell(tmp_path, line, "r-1")

    assert done.stdout == "2026-01-01T00:00:00+00:00\tERROR\tPERMANENT_FAILURE\tr-1\task\n"


def test_the_lines_for_the_log_find_what_was_cut_short(tmp_path: Path) -> None:
    counts, ends = (
        next(line for line in LINES if line.startswith("jq ") and event in line)
        for event in ("STEP_TERMINATED", "LEASE_AT_SHUTDOWN")
    )
    facts = {
        "event": "STEP_TERMINATED",
        "reason": "lease_expired",
        "at": "2026-01-01T00:00:00+00:00",
        "runId": "r-1",
        "step": "ask",
        "ending": "released",
    }
    both = [json.dumps(facts), json.dumps(facts | {"event": "LEASE_AT_SHUTDOWN"})]
    (tmp_path / "dev.log").write_text("\n".join(["ready", both[0], *both]))

    assert shell(tmp_path, counts, "r-1").stdout.split() == ["2", "lease_expired"]
    assert shell(tmp_path, ends, "r-1").stdout == "2026-01-01T00:00:00+00:00\tr-1\task\treleased\n"


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("curl ")])
def test_each_address_is_served_and_each_body_is_json(line: str) -> None:
    words = shlex.split(line)
    path = words[words.index("POST") + 1].replace("$URL", "").replace("$RUN", "r-1")

    assert ROUTES.row_at("POST", path) is not None, path
    assert json.loads(words[words.index("-d") + 1])


#: How what `why` says of a run begins.
WAITS = (
    "to finish",
    "a worker to take over",
    "the sweep to end",
    "the time of",
    "a worker to take",
    "a remote worker to claim",
    "its lanes",
    "the steps that run at once",
    "the run of another pipeline",
    "the signal",
    "a person to resume it",
    "a person to decide",
    "the code to be put right",
    "what it owes to be published",
)


@pytest.mark.parametrize("wait", WAITS)
def test_each_wait_that_why_names_has_its_row(wait: str) -> None:
    """Signals, lists and wrong deploys had none: their runs seemed to be in trouble."""
    words = Path(inspect.getfile(explanation)).read_text()
    rows = re.findall(r"^\| (.*?) \| .+ \|$", PAGE, re.MULTILINE)

    assert wait in words
    assert any(wait in row for row in rows)


def test_each_line_that_a_metric_counts_is_on_the_page_of_lines() -> None:
    """A call that may have happened had none."""
    metrics = (DOCS / "alerts.md").read_text().partition("## Metrics")[2]
    counted = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", metrics))

    assert len(counted) > 8
    assert {line for line in counted if not re.search(rf"\b{line}\b", PAGE)} == set()


def test_every_reason_and_every_threshold_is_explained() -> None:
    prose = re.sub(r"<!-- generated.*?<!-- end -->", "", PAGE, flags=re.DOTALL)

    for entry in DEAD_LETTERS:
        assert f"`{entry.key}`" in prose
    for setting in SETTINGS:
        assert not setting.is_threshold or f"| `{setting.name}` |" in prose


def test_the_settings_say_the_waits_of_a_queue_on_this_machine_and_deployed() -> None:
    first, last = (SETTINGS[f"PIPELINE_{name}_BACKOFF_S"].default for name in ("MIN", "MAX"))
    shortest, longest = QUEUE_BACKOFF.minimum, QUEUE_BACKOFF.maximum

    said = (DOCS / "settings.md").read_text()

    of_dev = f"{shortest.total_seconds():g} s to {longest.total_seconds():g} s"
    assert f"[{of_dev} in `leasehold dev`, {first} s to {last} s deployed](provisioning.md#" in said


def store(ctx: StepContext, _: object) -> None:
    """Store a file, beside those that the run was started with."""
    ctx.artifacts.put("stored.txt", b"stored")


def give_up(ctx: StepContext, _: object) -> None:
    """Say which files there are, and have the run given up."""
    raise PermanentError(", ".join(sorted(ctx.artifacts.list())))


@pytest.mark.parametrize(
    ("from_step", "seen"), [(None, "given.txt"), ("store", "given.txt, stored.txt")]
)
def test_a_recreated_run_has_the_files_of_the_start_and_no_others(
    tmp_path: Path, from_step: str | None, seen: str
) -> None:
    """As the page says; from the step that stores them on, they are stored again."""
    limits = {"agent_timeout": timedelta(minutes=1), "dispatch_deadline": timedelta(minutes=2)}
    steps = [
        StepDispatchEntry(step_type=name, handler=handler, **limits)
        for name, handler in (("store", store), ("give_up", give_up))
    ]
    pipeline = PipelineEntry(name="two", steps=("store", "give_up"))
    catalog = Catalog(Registry("dispatch", steps), Registry("pipelines", [pipeline]))
    with testing.engine(catalog, tmp_path) as engine:
        first = engine.start("two", files={"given.txt": b"given"})
        engine.run_until_settled(first.run_id)
        again = engine.recreate(first.run_id, from_step=from_step)
        error = engine.run_until_settled(again.run_id).error

    assert error is not None
    assert error.message == seen


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="Prometheus is not installed; get it: apt install prometheus",
)
def test_prometheus_takes_its_configuration_and_its_alerts_as_they_stand(tmp_path: Path) -> None:
    scrapes, alerts = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "leasehold-token").write_text("secret")

    for what, text in (("config", scrapes), ("rules", alerts)):
        (tmp_path / what).write_text(text)
        checked = subprocess.run(
            ["promtool", "check", what, what],  # noqa: S607 - on the path
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_page_names_each_metric() -> None:
    nothing = Figures(RunCounts({}, {}, 1), 0.0, {}, {}, {}, {})
    names = set(re.findall(r"^# TYPE (\w+)", metrics_text(nothing), re.MULTILINE))

    assert names == set(re.findall(r"^\| `(leasehold_\w+)", PAGE, re.MULTILINE))
    assert names >= set(re.findall(r"leasehold_\w+(?= >|\[|\{outcome)", PAGE))
