"""The demo: serve the bundle here, review a folder with it, and show the result.

Usage: INPUT=folder CHAOS=1 python -m examples.demo.run

The worker that supervises the digest is killed in its middle, and the next one goes on from there.
CHAOS=1 kills workers in the middle of other steps as well, and has one step hang. A demo that was
killed is continued by the next one on the same folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from examples.demo import kill_in_review
from examples.demo.chaos import Chaos, account, pace_for
from examples.demo.doubled_message import DoubledMessage
from examples.demo.kill_in_review import KillInSupervision
from leasehold import Client, LeaseholdError, PermanentError
from leasehold.cli.watch import wait_for
from leasehold.devserver.events import EventsDouble
from leasehold.devserver.function_processes import own_port
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.domain.manifest import Manifest
from leasehold.logs.stderr_log import log_to_stderr
from leasehold.presentation.run_state import result_of
from pipelines.review.agent import PACE, pace_of
from pipelines.review.files import find_markdown
from pipelines.review.markdown_escapes import escape_controls
from pipelines.review.models import Review, ReviewInput

LEASEHOLD: Final = Path(sys.executable).parent / "leasehold"
CATALOG: Final = "examples.demo.catalog"
CHAOS_CATALOG: Final = "examples.demo.chaos_catalog"


def main() -> int:
    """Serve the bundle, run the demo on it; return the exit code, 0 when everything worked."""
    wanted = os.environ.get("CHAOS", "")
    if wanted not in ("", "1"):
        say(f"error: CHAOS is {wanted!r}; allowed: 1, or nothing")
        return 2
    folder = Path(os.environ.get("INPUT") or ".").resolve()
    try:
        documents = len(find_markdown(ReviewInput(folder=str(folder))).files)
        pace_of(os.environ.get(PACE, ""))
    except PermanentError as error:
        say(f"error: {'' if error.code == 'bad_setting' else 'INPUT: '}{error}")
        return 2
    environ = os.environ | {"LEASEHOLD_CATALOG": CATALOG}
    if wanted:
        environ = {PACE: pace_for(documents), **environ, "LEASEHOLD_CATALOG": CHAOS_CATALOG}
    log_to_stderr()
    server = None
    try:
        server = DevServer(DevOptions(port=own_port(), environ=environ), say)
        say("starting the functions on this machine")
        server.start()
        return review(folder, Client(server.url), server.events, chaotic=bool(wanted))
    except KeyboardInterrupt:
        say("stopped; make demo again continues where it was")
        return 130
    except LeaseholdError as error:
        say(f"error: {error.message}")
        return 2
    finally:
        if server is not None:
            server.stop()


def review(folder: Path, client: Client, events: EventsDouble | None, *, chaotic: bool) -> int:
    """Have the server review the folder, and show the result; return the exit code."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    key = unfinished(client, f"demo:{digest}") or f"demo-{secrets.token_hex(4)}"
    given = {"folder": str(folder)}
    started = client.start("review", given, idempotency_key=key, labels={"demo": digest})
    doubled = None if events is None else DoubledMessage(events)
    with (
        KillInSupervision(client, started.run_id, say) as kill,
        Chaos(client, started.run_id, say) if chaotic else nullcontext() as chaos,
    ):
        run = wait_for(client, started.run_id, quiet=False)
    accounts = {}
    if chaos is not None:
        accounts["The chaos"] = account(chaos.hits, run, client.trace(run))
    if kill.hits and run.completed_at:
        review = Review.model_validate(client.output(run, kill.hits[0].step))
        accounts["The kill"] = kill_in_review.account(
            kill.hits[0], review.supervision, client.trace(run)
        )
    if doubled is not None:
        accounts["Announced"] = doubled.account(client, run)
    for name, (_, lines) in accounts.items():
        print(escape_controls(f"\n{name + ':':14}" + "\n              ".join(lines)))
    tell(run)
    return 0 if run.completed_at and all(survived for survived, _ in accounts.values()) else 1


def unfinished(client: Client, label: str) -> str | None:
    """Return the idempotency key of the last demo on this folder, if that run is still live."""
    for listed in client.page(limit=1, label=label).runs:
        run = client.get(listed)
        return None if run.is_terminal else run.idempotency_key
    return None


def tell(run: Manifest) -> None:
    """Say where the report is, what the run did, and what to try next."""
    program = near(str(LEASEHOLD))
    output = run.steps["publish"].output
    if run.completed_at is None or output is None:
        say(f"{result_of(run).text}\nnext: {program} show {run.run_id}")
        return
    done = json.loads(output)
    bootstrap = sum(step.bootstrap_seconds or 0.0 for step in run.steps.values())
    execution = sum(step.execution_seconds or 0.0 for step in run.steps.values())
    counts = ", ".join(f"{count} {severity}" for severity, count in done["findings"].items())
    print(
        escape_controls(f"""
The report:   {near(done["report"])}

What it did:  read {done["documents"]} documents, found {done["claims"]} claims, \
condensed them to {done["points"]} key points
              verdict: {done["verdict"].replace("_", " ")}; findings: {counts}
              {len(run.steps)} steps, each recorded once, in their own functions:
              {bootstrap:.1f} s of bootstrap and {execution:.1f} s of execution

Try next:     {program} trace {run.run_id}    everything that happened
              {program} show {run.run_id}     the run's one document
              make demo INPUT=path/to/folder     your own Markdown
              make demo CHAOS=1     the same, while more workers are killed and a step hangs
              kill -9 it in the middle, then make demo again: it continues where it was""")
    )


def say(text: str) -> None:
    """Write a line for people, on stderr."""
    sys.stderr.write(f"{escape_controls(text)}\n")  # whole, whatever else is written beside it
    sys.stderr.flush()


def near(path: str) -> str:
    """Return a path as it is typed from here."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


if __name__ == "__main__":
    sys.exit(main())
