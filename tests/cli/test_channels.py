"""Channels of a project: what `check` finds, what `registry` shows, and no secret in either."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.worlds.shell import Shell, only_line

ROOT = Path(__file__).parents[2]
PLANTED = "planted-7f3a"

CATALOG = """
from datetime import timedelta
from leasehold import (CustomChannel, LogChannel, PipelineEntry, Registry, StepDispatchEntry,
    WebhookChannel)

def read(ctx, given):
    return given

def page(message, timeout):
    return "1"

def alone(message):
    pass

STEPS = Registry("dispatch", [StepDispatchEntry(step_type="read", handler="catalog:read",
    agent_timeout=timedelta(minutes=1), dispatch_deadline=timedelta(minutes=2))])
PIPELINES = Registry("pipelines", [PipelineEntry(name="pages", steps=("read",))])
CHANNELS = Registry("channels", [
    LogChannel(name="log"),
    CustomChannel(name="pager", sender="catalog:page", events=("run_blocked",)),
    WebhookChannel(name="hook", url_variable="HOOK_URL", secret_variable="HOOK_SECRET",
        pipelines=("pages",)),
])
"""


@pytest.fixture
def project(shell: Shell) -> Shell:
    (shell.folder / "catalog.py").write_text(CATALOG)
    shell.settings["LEASEHOLD_CATALOG"] = "catalog"
    return shell


def change(project: Shell, old: str, new: str) -> None:
    assert old in CATALOG
    (project.folder / "catalog.py").write_text(CATALOG.replace(old, new))


def test_a_variable_that_is_not_set_is_a_warning_and_no_finding(project: Shell) -> None:
    """Where a project is checked, its secrets need not be."""
    done = project.run("check", HOOK_URL=f"https://hooks.example/{PLANTED}")

    assert done.returncode == 0
    assert done.stdout == "nothing found: 1 step, 0 gates, 1 pipeline, 3 channels\n"
    assert only_line(done.stderr) == (
        "warning: channel hook: HOOK_SECRET is not set here; "
        "set it, or HOOK_SECRET_FILE, where announcements are sent"
    )
    answer = json.loads(project.run("check", "--json", HOOK_SECRET_FILE=PLANTED).stdout)
    assert answer["checked"]["channels"] == 3
    assert [line.partition(" is not")[0] for line in answer["warnings"]] == [
        "channel hook: HOOK_URL"
    ]
    assert PLANTED not in done.stdout + done.stderr + json.dumps(answer)


UNRESOLVED = "catalog.py:20: Sender 'catalog:{}' of channel 'pager' does not resolve: "
REFUSED = "{} of 'hook' in the channels registry is '{}'; allowed: "


@pytest.mark.parametrize(
    ("old", "new", "line", "further"),
    [
        (":page", ":nothing", UNRESOLVED.format("nothing"), "'catalog' has no 'nothing'."),
        (":page", ":alone", UNRESOLVED.format("alone"), "two arguments, (message, timeout)."),
        ('("pages",))', '("page",))', REFUSED.format("pipelines", "page"), "catalog: pages."),
        (
            '"HOOK_SECRET"',
            f'"whsec_{PLANTED}"',
            REFUSED.format("secret_variable", "[not shown]"),
            "the name of the variable that holds it, in capitals, as SLACK_URL.",
        ),
        ('Registry("channels", [', "([", "its CHANNELS is not a Registry.", ""),
    ],
)
def test_what_is_wrong_with_a_channel_is_found_before_anything_runs(
    project: Shell, old: str, new: str, line: str, further: str
) -> None:
    change(project, old, new)

    done = project.run("check")

    assert done.returncode in (1, 2)
    assert line in done.stdout + done.stderr
    assert further in done.stdout + done.stderr
    assert PLANTED not in done.stdout + done.stderr


def test_the_registry_shows_channels_and_what_is_set(project: Shell) -> None:
    table = project.run("registry", HOOK_URL=PLANTED).stdout
    report = json.loads(project.run("registry", "--json", HOOK_URL=PLANTED).stdout)

    channels = table.partition("CHANNEL\t")[2].splitlines()[1:]
    assert [line.split("\t") for line in channels] == [
        ["log", "log", "all", "all", ""],
        ["pager", "custom", "run_blocked", "all", ""],
        ["hook", "webhook", "all", "pages", "HOOK_URL (set), HOOK_SECRET (not set)"],
    ]
    assert report["channels"][2] == {
        "name": "hook",
        "kind": "webhook",
        "events": [],
        "pipelines": ["pages"],
        "variables": [
            {"name": "HOOK_URL", "isSet": True},
            {"name": "HOOK_SECRET", "isSet": False},
        ],
    }
    assert PLANTED not in table + json.dumps(report)


def test_a_package_that_a_channel_needs_is_only_warned_of(
    project: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "slack_sdk", None)  # as if it was not installed
    slack = 'SlackChannel(name="team", url_variable="TEAM_URL")'
    change(project, "LogChannel", "SlackChannel")
    catalog = project.folder / "catalog.py"
    catalog.write_text(catalog.read_text().replace('SlackChannel(name="log")', slack))

    done = project.run("check", TEAM_URL="x", HOOK_URL="x", HOOK_SECRET="x")  # noqa: S106 - no secret

    assert done.returncode == 0
    assert only_line(done.stderr) == (
        "warning: channel team needs slack_sdk, which is not installed. "
        f"Type: pip install -e '{ROOT}[channels]'"
    )
