"""What the page on handlers shows runs as it stands there, from top to bottom."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from leasehold import StepContext, StepDispatchEntry

PAGE = (Path(__file__).parents[2] / "docs/handlers.md").read_text()


def test_the_pipeline_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "steps.py").write_text("\n\n".join(blocks))
    (line,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    setting, program, *words = shlex.split(line)
    name, _, value = setting.partition("=")

    done = subprocess.run(
        [sys.executable, "-m", program, *words, "--json"],
        cwd=tmp_path,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    run = json.loads(done.stdout)
    (file,) = tmp_path.rglob("digest.txt")

    assert run["status"] == "COMPLETED"
    assert run["output"] == {"file": "report/digest.txt", "lines": 2}
    assert "WHAT IS KNOWN ABOUT LEASES." in file.read_text()
    for line in (
        "step=collect attempt=1 leasehold.step: 2 topics",
        "step=report attempt=1 digest: ",
    ):
        assert f"INFO run={run['runId']} {line}" in done.stderr


def test_the_page_names_all_that_a_context_has_and_all_fields_of_a_step() -> None:
    public = [name for name in vars(StepContext) if not name.startswith("_")]
    fields = list(StepDispatchEntry.__dataclass_fields__)

    assert [name for name in public if name not in PAGE] == []
    assert [name for name in fields if f"`{name}`" not in PAGE] == []
