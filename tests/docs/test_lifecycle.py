"""The generated parts of the docs agree with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import limits
from docs.generate import (
    EVENT_WORDS,
    GENERATED,
    error_codes,
    fresh,
    lifecycle,
    main,
)
from leasehold.domain.status import NEXT, RunEvent, RunStatus

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "lifecycle.md": [
        "statuses",
        "overlays",
        "run-events",
        "lifecycle",
        "attempt-ends",
        "operations",
    ],
    "errors.md": ["errors", "handler-errors"],
    "http-api.md": ["calls-of-runs", "calls-of-leases", "shapes", "error-statuses"],
    "events.md": ["events"],
    "operations.md": ["dead-letters"],
    "reference.md": ["reference"],
    "reference-testing.md": ["reference-testing"],
    "reference-agents.md": ["reference-agents"],
    "costs.md": [
        "cost-region",
        "cost-operations",
        "cost-per-thousand",
        "cost-compute",
        "cost-in-one-line",
        "cost-alternatives",
        "cost-prices",
    ],
    "settings.md": ["settings"],
    "configuration.md": ["file-keys"],
    "notifications.md": ["delivery-settings"],
    "architecture.md": ["layers", "packages"],
    "bundle.md": ["functions"],
    "permissions.md": ["permissions"],
    "alerts.md": ["alerts", "metrics"],
    "deploy.md": ["deployer-roles", "builder-roles", "build-options"],
    "limits.md": [f"limits-{story}" for story in limits.STORIES],
}


def test_the_docs_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], DOCS) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("page", PAGES)
def test_each_page_has_its_generated_parts(page: str) -> None:
    """A marker that was lost would freeze the page as it is, and the check would not see it."""
    text = (DOCS / page).read_text()

    assert [name for name in GENERATED if f"<!-- generated: {name} -->\n" in text] == sorted(
        PAGES[page], key=list(GENERATED).index
    )
    assert text.count("<!-- end -->") == len(PAGES[page])


def test_every_generated_part_stands_on_a_page() -> None:
    assert sorted(GENERATED) == sorted(name for names in PAGES.values() for name in names)


def test_the_table_has_each_pair_of_the_state_machine() -> None:
    rows = {
        cells[1]: cells[2:-1]
        for line in lifecycle().splitlines()
        if line.startswith("| ")
        for cells in [[cell.strip() for cell in line.split("|")]]
    }

    for event in RunEvent:
        expected = [NEXT.get((status, event), "") for status in RunStatus]
        assert rows[event.value] == expected


def test_the_drawing_has_each_move_of_workers() -> None:
    """A missing arrow sends a reader looking for a bug that does not exist."""
    drawn = [line.strip() for line in lifecycle().splitlines() if "-->" in line]

    assert drawn == [
        "[*] --> PENDING",
        "PENDING --> IN_PROGRESS: lease acquired",
        "ERROR --> IN_PROGRESS: lease acquired",
        (
            "IN_PROGRESS --> PENDING: lease released, step continued, lease expired, "
            "step handed off, trial opened, children begun, item left"
        ),
        "IN_PROGRESS --> COMPLETED: last step done, last item left",
        "IN_PROGRESS --> ERROR: attempt failed",
        "IN_PROGRESS --> BLOCKED: gate failed, cannot run, child failed",
        (
            "PENDING --> BLOCKED: step unknown, budget exceeded, call unconfirmed, wait begun, "
            "children stopped, child failed"
        ),
        "ERROR --> BLOCKED: step unknown, budget exceeded, call unconfirmed, child failed",
        (
            "BLOCKED --> PENDING: wait over, looked again, retried, approved, trial opened, "
            "budget raised"
        ),
        "PENDING --> COMPLETED: last step done, last item left",
        "ERROR --> PENDING: retried, item left",
        "BLOCKED --> COMPLETED: last step done",
        "ERROR --> COMPLETED: last item left",
        "COMPLETED --> [*]",
    ]


def test_what_is_explained_is_there() -> None:
    """Words for an event that was removed would stand in no table, and mislead who edits."""
    assert set(EVENT_WORDS) == set(RunEvent)


def test_a_stale_page_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = "before\n<!-- generated: statuses -->\nold\n<!-- end -->\nafter\n"
    (tmp_path / "b.md").write_text(stale)
    (tmp_path / "a.md").write_text(stale)
    (tmp_path / "c.md").write_text("nothing generated\n")

    code = main(["--check"], tmp_path)

    assert code == 1
    assert capsys.readouterr().out == (
        "a.md is stale; run: python docs/generate.py\nb.md is stale; run: python docs/generate.py\n"
    )
    assert (tmp_path / "a.md").read_text() == stale


def test_writing_changes_what_stands_between_the_markers_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "a.md"
    page.write_text("before\n<!-- generated: overlays -->\n<!-- end -->\nafter\n")

    code = main([], tmp_path)

    assert (code, capsys.readouterr().out) == (0, "a.md written\n")
    assert page.read_text().startswith("before\n<!-- generated: overlays -->\n| overlay | mean")
    assert page.read_text().endswith(" |\n<!-- end -->\nafter\n")
    assert main(["--check"], tmp_path) == 0


def test_drawing_twice_is_drawing_once() -> None:
    text = "<!-- generated: lifecycle -->\n<!-- end -->\n"

    assert fresh(fresh(text)) == fresh(text)


def test_other_arguments_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write"]) == 2
    assert capsys.readouterr().err == "usage: python docs/generate.py [--check]\n"


def test_each_error_has_its_own_code() -> None:
    """Programs tell errors apart by it."""
    codes = [line.split("|")[1].strip() for line in error_codes().splitlines()[2:]]

    assert sorted(set(codes)) == sorted(codes)
    assert "`error`" not in codes
