"""What the page on handlers shows runs as it stands there, from top to bottom."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from leasehold import StepContext, StepDispatchEntry
from leasehold.testing import FrozenClock, InProcessEngine

PAGE = (Path(__file__).parents[2] / "docs/handlers.md").read_text()


def test_the_pipeline_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "steps.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "steps", raising=False)
    steps = importlib.import_module("steps")
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
    }
    (given,) = re.findall(r"--input '(.*)' --in-process", PAGE)

    with InProcessEngine(
        steps.STEPS, steps.PIPELINES, environ=environ, clock=FrozenClock(), workers=0
    ) as engine:
        run = engine.run("digest", json.loads(given))
        (file,) = tmp_path.rglob("digest.txt")

    assert run.status == "COMPLETED"
    assert run.steps["report"].output == '{"file":"report/digest.txt","lines":2}'
    assert run.steps["report"].output_status == "SUCCESS"
    assert "WHAT IS KNOWN ABOUT LEASES." in file.read_text()
    monkeypatch.delitem(sys.modules, "steps")


def test_the_page_names_all_that_a_context_has_and_all_fields_of_a_step() -> None:
    public = [name for name in vars(StepContext) if not name.startswith("_")]
    fields = list(StepDispatchEntry.__dataclass_fields__)

    assert [name for name in public if name not in PAGE] == []
    assert [name for name in fields if f"`{name}`" not in PAGE] == []
