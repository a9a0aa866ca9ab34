"""`leasehold schedules`, and what `check` says of a schedule that cannot be."""

from __future__ import annotations

import pytest

from tests.worlds.shell import Shell, only_line

ENTRY = """

from leasehold import ScheduleEntry

SCHEDULES = Registry("schedules", [
    ScheduleEntry("nightly", pipeline="order", cron="0 6 * * *", input={"amount": 3}),
])
"""


@pytest.fixture
def shop(shell: Shell) -> Shell:
    _write(shell, ENTRY)
    return shell


def _write(shell: Shell, entry: str) -> None:
    path = shell.folder / "shop.py"
    path.write_text(path.read_text() + entry)


def test_a_schedule_is_shown_paused_and_resumed(shop: Shell) -> None:
    listed = shop.json("schedules")["schedules"]
    paused = shop.run("schedules", "nightly", "--pause", "--why", "the month is closed")
    resumed = shop.json("schedules", "nightly", "--resume")

    assert [(one["name"], one["state"], one["cron"]) for one in listed] == [
        ("nightly", "active", "0 6 * * *")
    ]
    assert "nightly\tpaused\torder" in paused.stdout
    assert ": the month is closed" in only_line(paused.stderr)
    assert (resumed["state"], resumed["why"]) == ("active", "")


def test_a_catalog_without_schedules_says_so(shell: Shell) -> None:
    assert only_line(shell.run("schedules").stderr) == "the catalog has no SCHEDULES"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--resume",), "Give NAME and at most one of"),
        (("nightly", "--resume", "--trigger"), "Give NAME and at most one of"),
        (("nightly", "--pause"), "--pause takes --why"),
        (("nightly", "--why", "x"), "--pause takes --why"),
        (("nightly", "--resume", "--id", "x"), "--id is of --trigger alone"),
        (("no-such",), "no-such"),
        (("nightly", "--backfill", "2026-01-02", "2026-01-01"), "a span of the past"),
        (("nightly", "--backfill", "soon", "2026-01-01"), "soon"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    shop: Shell, words: tuple[str, ...], says: str
) -> None:
    refused = shop.run("schedules", *words)

    assert refused.returncode == 2
    assert says in only_line(refused.stderr)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("0 6 * * *", "0 6 31 2 *", "it never fires"),
        ('pipeline="order"', 'pipeline="no-such"', "pipelines of the catalog"),
        ('input={"amount"', 'tz="Europe/Nowhere", input={"amount"', "a time zone"),
        ('input={"amount": 3}', 'input={"amount": "x"}', "does not fit Order"),
        ('input={"amount"', 'catch_up=6, input={"amount"', "a timedelta from 0 to 31 days"),
        (
            "])",
            '    ScheduleEntry("nightly", pipeline="order", cron="0 7 * * *"),\n])',
            "nightly",
        ),
    ],
)
def test_check_refuses_what_cannot_be_a_schedule(
    shell: Shell, before: str, after: str, says: str
) -> None:
    _write(shell, ENTRY.replace(before, after))

    checked = shell.run("check")

    assert checked.returncode == 1
    assert says in checked.stdout + checked.stderr
