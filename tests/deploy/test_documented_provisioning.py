"""docs/provisioning.md: its commands do what it says, and its tables have the words in use."""

from __future__ import annotations

import re
from pathlib import Path

from leasehold.bootstrap import load_catalog
from leasehold.cli.deploy.provision import PLANNED
from leasehold.deploy.resources.queue import queues
from tests.deploy.cloud import Cloud

PAGE = (Path(__file__).parents[2] / "docs" / "provisioning.md").read_text()


def test_its_commands_of_provisioning_work_in_the_order_of_the_page(cloud: Cloud) -> None:
    """An apply tells each thing it does, and counts them; what waits is no drift."""
    commands = re.findall(r"^leasehold deploy ([^#\n]*)", PAGE, re.MULTILINE)

    done = [cloud.provision(*command.split()) for command in commands]

    typed = [command.strip() for command in commands]
    assert typed == ["plan", "apply", "drift", "apply --with-proposals", "apply --update"]
    assert [one.code for one in done] == [0] * 5
    _, applied, same, *_ = done
    assert "created: queue pick-up" in applied.stdout.splitlines()
    assert " created" in applied.stdout.splitlines()[-1]
    assert applied.stderr == ""
    assert "waits" in same.stdout

    other = cloud.provision("drift", "--json", PIPELINE_MAX_BACKOFF_S="60")

    assert other.code == 1
    rows = [row for row in other.json["resources"] if row["kind"] == "queue"]
    assert rows[0]["differences"] == [{"field": "max-backoff", "found": "300s", "wanted": "60s"}]


def test_it_has_each_state_that_a_plan_may_say() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE)

    assert rows[: len(PLANNED)] == list(PLANNED.values())


def test_it_has_the_lines_that_are_printed() -> None:
    sources = [path for path in Path("shared/leasehold").rglob("*.py") if "deploy" in path.parts]
    sources.append(Path("shared/leasehold/google_clients/call_errors.py"))
    printed = "".join(path.read_text() for path in sources)
    lines = re.findall(r"^\| `((?:there|the|one|it|--region)[^`]*)` \|", PAGE, re.MULTILINE)
    parts = [part.strip(" ;") for line in lines for part in line.split("…")]

    assert len(lines) == 7
    flat = re.sub(r"\"\s*f?\"", "", printed)
    assert [part for part in parts if part and part not in flat] == []


def test_the_command_for_a_queue_is_the_one_that_a_plan_prints(cloud: Cloud) -> None:
    (queue, _) = queues(cloud.clients, cloud.installation, load_catalog("tests.deploy.catalog"))
    queue.create()
    other = cloud.provision("plan", PIPELINE_MIN_BACKOFF_S="1")

    assert "gcloud tasks queues update extraction --location=" in PAGE
    assert "to repair it: gcloud tasks queues update pick-up --location=" in other.stdout
