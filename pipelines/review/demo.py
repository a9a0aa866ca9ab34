"""The demo: review a folder with the command line as anybody would, and say what came of it.

Usage: python -m pipelines.review.demo [FOLDER]

A demo that was killed is continued by the next one on the same folder.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

LEASEHOLD: Final = str(Path(sys.executable).parent / "leasehold")


def main() -> int:
    """Run the demo; return the exit code of the run."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    label = f"demo:{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    command = [LEASEHOLD, "start", "review", "--in-process", "--label", label]
    command += ["--input", json.dumps({"folder": str(folder)})]
    command += ["--idempotency-key", unfinished(label) or f"demo-{secrets.token_hex(4)}"]
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - our own program
    if code == 0:
        tell(asked(*command[1:]))
    return code


def unfinished(label: str) -> str | None:
    """Return the idempotency key of the last demo on this folder, if that run is still live."""
    for run in asked("runs", "--label", label, "--limit", "1")["runs"]:
        if run["status"] != "COMPLETED" and not run["cancelled"] and not run["deadLettered"]:
            key: str | None = asked("show", run["runId"])["idempotencyKey"]
            return key
    return None


def asked(*words: str) -> Any:
    """Return what the command line answers in JSON."""
    command = [LEASEHOLD, *words, "--json"]
    answer = subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - as above
    return json.loads(answer.stdout)


def tell(summary: dict[str, Any]) -> None:
    """Say where the report is, what the run did, and what to try next."""
    run_id = summary["runId"]
    steps = asked("show", run_id)["steps"]
    seconds = sum(step["executionSeconds"] for step in steps.values())
    done = json.loads(steps["publish"]["output"])
    found = ", ".join(f"{count} {severity}" for severity, count in done["findings"].items())
    program = near(LEASEHOLD)
    print(f"""
The report:   {near(done["report"])}

What it did:  read {done["documents"]} documents, found {done["claims"]} claims, \
condensed them to {done["points"]} key points
              verdict: {done["verdict"].replace("_", " ")}; findings: {found}
              {len(steps)} steps, each recorded once, {seconds:.1f} s of work

Try next:     {program} trace {run_id}    all that happened
              {program} show {run_id}     the run's one document
              make demo INPUT=path/to/folder     your own Markdown
              kill -9 it in the middle, then make demo again: it goes on where it was""")


def near(path: str) -> str:
    """Return a path as it is typed from here."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


if __name__ == "__main__":
    sys.exit(main())
