"""The whole pipeline on real folders, through the engine."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from leasehold.testing import InProcessEngine


def publication(engine: InProcessEngine, run_id: str) -> dict[str, object]:
    engine.run_until_idle()
    output = engine.show(run_id).steps["publish"].output
    assert output is not None
    published: dict[str, object] = json.loads(output)
    return published


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "my docs"
    (folder / "guide").mkdir(parents=True)
    (folder / "README.md").write_text(
        "# Leases\n\nLeases keep two workers apart.\n\n"
        "A worker must renew its lease every 10 seconds.\n\nSee the [guide](guide/use.md#set-up).\n"
    )
    (folder / "guide" / "use.md").write_text(
        "# Use\n\n## Set-up\n\nIt takes at most 5 minutes.\n\n[Back](../README.md#gone)\n"
    )
    (folder / "empty.md").touch()
    (folder / "latin.md").write_bytes("# Größe".encode("latin-1"))
    return folder


def test_nothing_from_outside_the_folder_gets_into_a_run(
    engine: InProcessEngine, docs: Path
) -> None:
    """Each document goes to an agent, which may be a model's provider."""
    (docs.parent / "outside.md").write_text("# Outside\n\nThe key must be hunter2 at all times.\n")
    (docs / "link.md").symlink_to("../outside.md")
    (docs / "guide" / "up").symlink_to("../..", target_is_directory=True)

    run = engine.start("review", {"folder": str(docs)})
    published = publication(engine, run.run_id)

    kept = [path.read_text() for path in docs.parent.rglob("artifacts/**/*") if path.is_file()]
    outputs = [str(step.output) for step in engine.show(run.run_id).steps.values()]
    assert not [text for text in [*kept, *outputs] if "hunter2" in text]
    findings = json.loads(Path(str(published["findingsFile"])).read_text())
    assert ("linked", "link.md") in [(each["code"], each["document"]) for each in findings]


def test_a_folder_of_markdown_becomes_a_report(engine: InProcessEngine, docs: Path) -> None:
    run = engine.start("review", {"folder": str(docs)})

    published = publication(engine, run.run_id)

    assert {key: published[key] for key in ("verdict", "documents", "points", "findings")} == {
        "verdict": "pass_with_findings",
        "documents": 3,
        "points": 3,
        "findings": {"high": 0, "medium": 2, "low": 1},
    }
    findings = json.loads(Path(str(published["findingsFile"])).read_text())
    assert [(each["code"], each["document"]) for each in findings] == [
        ("broken_anchor", "guide/use.md"),
        ("not_utf8", "latin.md"),
        ("document_empty", "empty.md"),
    ]
    report = Path(str(published["report"])).read_text()
    assert "A worker must renew its lease every 10 seconds. [README.md:5](" in report


def test_the_links_of_the_report_lead_to_the_documents(engine: InProcessEngine, docs: Path) -> None:
    run = engine.start("review", {"folder": str(docs)})

    report = Path(str(publication(engine, run.run_id)["report"]))

    paths = {unquote(path) for path in re.findall(r"\]\(([^)#]+)", report.read_text())}
    assert len(paths) == 4
    assert all((report.parent / path).exists() for path in paths)


def test_the_same_folder_gives_the_same_digest(engine: InProcessEngine, docs: Path) -> None:
    runs = [engine.start("review", {"folder": str(docs)}).run_id for _ in range(2)]
    engine.run_until_idle()

    one, other = (engine.show(run).steps["synthesis"].output for run in runs)

    assert one is not None
    assert one == other


def test_a_folder_that_is_missing_ends_the_run_at_once(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    run = engine.start("review", {"folder": str(tmp_path / "gone")})

    engine.run_until_idle()

    ended = engine.show(run.run_id)
    assert ended.dead_letter_reason == "PERMANENT_FAILURE"
    assert ended.error is not None
    assert ended.error.code == "folder_missing"


def test_a_folder_in_which_no_file_can_be_read_says_why(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.md").write_bytes(b"\xff\xfe#\x00")
    run = engine.start("review", {"folder": str(tmp_path / "bad")})

    engine.run_until_idle()

    error = engine.show(run.run_id).error
    assert error is not None
    assert error.message == (
        f"None of the Markdown files in {tmp_path}/bad can be read; the first problem: "
        "a.md: The file is not UTF-8 (byte 0xff at offset 0); it is not reviewed. "
        "Save the file as UTF-8."
    )
