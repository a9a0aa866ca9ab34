"""Templates of the pages."""

from __future__ import annotations

import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from leasehold.api.operations import BatchBody, BatchResponse, RefusedRun
from leasehold.dashboard import rendering
from leasehold.dashboard.pages import batch_note, batch_words
from leasehold.domain.lifecycle import Operation


def test_a_process_keeps_its_templates_while_another_version_takes_their_place(
    tmp_path: Path,
) -> None:
    """Those of the other version would ask for values that this one does not give."""
    shutil.copytree(Path(rendering.__file__).parent, tmp_path, dirs_exist_ok=True)
    spec = spec_from_file_location("rendering_of_a_process", tmp_path / "rendering.py")
    assert spec is not None
    assert spec.loader is not None
    process = module_from_spec(spec)
    spec.loader.exec_module(process)
    texts = (
        "problem",
        "account",
        "here",
        "address",
        "done",
        "query_problem",
        "json_url",
        "now",
        "run_path",
    )
    values: dict[str, Any] = dict.fromkeys(texts, "")
    values |= {"title": "Gone", "remedy": "Look", "form_of": "", "poll_s": 0, "has_session": False}
    values |= {"may": {"change": True}, "form_token": "token"}
    before = process.render("error.html", values)

    for path in (tmp_path / "templates").iterdir():
        path.write_text("{{ of_another_version }}")

    assert process.render("error.html", values) == before


def test_what_a_batch_came_to_is_said_of_its_runs_alone_and_where_more_are_left() -> None:
    given = BatchBody(action=Operation.CANCEL, limit=3)
    refused = [RefusedRun(run_id="r-1", code="not_allowed")]
    note = batch_note("status=ERROR", given, BatchResponse(matched=4, changed=3, refused=refused))

    assert batch_words(note, "status=ERROR") == (
        "Cancel: 4 runs looked at, 3 changed, refused: 1 not_allowed. "
        "It came to its limit: do it again for the rest."
    )
    assert batch_words(note, "status=BLOCKED") == ""


def test_a_query_names_each_of_several_values() -> None:
    found = rendering.query_of({"label": ["team:a", "mode:b"], "step": ""}, pageToken="x")

    assert found == "?label=team%3Aa&label=mode%3Ab&pageToken=x"
