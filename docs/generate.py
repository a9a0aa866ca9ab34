"""Generates the parts of the docs that come from the code, between markers in the Markdown files.

`python docs/generate.py` writes them; `--check` writes nothing, prints a line for each file that
is stale, and exits 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pydantic.alias_generators import to_camel

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script it knows its own folder alone

from docs import costs, deployed, http_api, limits, reference
from docs.markdown import table as _table
from docs.trace_events import TRACE_EVENTS
from leasehold import errors
from leasehold.api.calls import CALLS, OPERATIONS
from leasehold.domain.lifecycle import ALLOWED, Operation
from leasehold.domain.status import NEXT, AttemptEnd, RunEvent, RunStatus
from leasehold.presentation.run_state import OVERLAYS
from leasehold.registry.dead_letters import DEAD_LETTERS
from leasehold.registry.settings import SETTINGS
from leasehold.remote_workers.calls import LEASE_CALLS

FOLDER: Final = Path(__file__).parent
_BLOCK: Final = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)

STATUS_WORDS: Final[Mapping[RunStatus, str]] = {
    RunStatus.PENDING: "An attempt is dispatched and waits for a worker.",
    RunStatus.IN_PROGRESS: "A worker holds the lease. It is never in progress without one.",
    RunStatus.ERROR: "An attempt failed. The next one is scheduled, unless the run is given up.",
    RunStatus.BLOCKED: "A gate refused the output and a person decides, or the code cannot run "
    "the step; `block` has the reason and the remedy.",
    RunStatus.COMPLETED: "The output of the last step is recorded.",
}

_WORKER: Final = "a worker"
_ENGINE: Final = "the engine"
_PERSON: Final = "a person"

#: Who causes an event, and what it means.
EVENT_WORDS: Final[Mapping[RunEvent, tuple[str, str]]] = {
    RunEvent.LEASE_ACQUIRED: (_WORKER, "The worker took the waiting step; the fencing token grew."),
    RunEvent.LEASE_TAKEN_OVER: (
        _WORKER,
        "The worker took the step from one whose lease was over; the fencing token grew.",
    ),
    RunEvent.LEASE_RENEWED: (_WORKER, "The lease is extended, at most to its cap."),
    RunEvent.LEASE_RELEASED: (
        _WORKER,
        "The worker was shut down; the next attempt is dispatched at once.",
    ),
    RunEvent.STEP_CONTINUED: (
        _WORKER,
        "The next attempt goes on from the last checkpoint; it is dispatched at once.",
    ),
    RunEvent.LEASE_EXPIRED: (
        _ENGINE,
        "The worker was lost; the next attempt is dispatched at once.",
    ),
    RunEvent.STEP_HANDED_OFF: (
        _WORKER,
        "The output is recorded and the next step is dispatched, in one commit.",
    ),
    RunEvent.TRIAL_OPENED: (
        f"{_WORKER}, or {_PERSON} who approves",
        "The reviewer wants another trial; its author is dispatched, in the same commit.",
    ),
    RunEvent.LAST_STEP_DONE: (
        f"{_WORKER}, or {_PERSON} who approves",
        "The output of the last step is recorded; the run is terminal.",
    ),
    RunEvent.ATTEMPT_FAILED: (
        f"{_WORKER}, or {_ENGINE}",
        "The attempt failed, or was ended at a limit; the next one waits for the backoff.",
    ),
    RunEvent.GATE_FAILED: (_WORKER, "A gate refused the output; a person decides."),
    RunEvent.STEP_UNKNOWN: (
        _ENGINE,
        "No live worker knows the step; the run waits for one that does.",
    ),
    RunEvent.CANNOT_RUN: (
        _WORKER,
        "The deployed code cannot run the step; the run waits for code that can.",
    ),
    RunEvent.BUDGET_EXCEEDED: (
        _ENGINE,
        "The run, or its step, has spent all that it may: it is blocked before its next attempt.",
    ),
    RunEvent.CALL_UNCONFIRMED: (
        _ENGINE,
        "A call that may have happened must not be repeated: a person has to say which it is.",
    ),
    RunEvent.WAIT_BEGUN: (
        _ENGINE,
        "The step waits for a signal: nothing runs until it comes, or until the end of the wait.",
    ),
    RunEvent.WAIT_OVER: (
        f"{_PERSON} or a program that sends it, or {_ENGINE}",
        "The signal is there, or the time of the wait is over; the step is dispatched.",
    ),
    RunEvent.LOOKED_AGAIN: (
        _ENGINE,
        "The blocked step is dispatched again, in case the code has been corrected.",
    ),
    RunEvent.PAUSED: (_PERSON, "Nothing more is dispatched."),
    RunEvent.RESUMED: (
        _PERSON,
        "The next attempt is dispatched at once; an attempt that still runs continues.",
    ),
    RunEvent.BUDGET_RAISED: (_PERSON, "The step is dispatched again, with a higher budget."),
    RunEvent.RETRIED: (_PERSON, "The step is dispatched again, without waiting for its backoff."),
    RunEvent.APPROVED: (_PERSON, "The kept output is handed off."),
    RunEvent.CANCELLED: (_PERSON, "The run is terminal; a late output is discarded."),
    RunEvent.DEAD_LETTERED: (_ENGINE, "The run is terminal; nothing tries it again."),
    RunEvent.CHILDREN_BEGUN: (
        _WORKER,
        "The run waits for small runs, which begin with the same commit.",
    ),
    RunEvent.CHILDREN_STOPPED: (
        _ENGINE,
        "All runs that it waits for stand still, or left something out; a person decides.",
    ),
    RunEvent.CHILD_FAILED: (
        f"{_WORKER}, or {_ENGINE}",
        "It would be given up, but another run waits for it; a person decides.",
    ),
    RunEvent.ITEM_LEFT: (
        f"{_WORKER}, or {_ENGINE}",
        "An item of a lane failed, as some may; its next item is dispatched.",
    ),
    RunEvent.LAST_ITEM_LEFT: (
        f"{_WORKER}, or {_ENGINE}",
        "The last item of a lane failed, as some may; the lane is through.",
    ),
}

END_WORDS: Final[Mapping[AttemptEnd, str]] = {
    AttemptEnd.FAILED: "Its handler raised, returned what does not fit, or was ended at a limit. "
    "Uses up a retry.",
    AttemptEnd.INTERRUPTED: "Its worker was shut down and said so. Counts as an interruption.",
    AttemptEnd.EXPIRED: "Its worker went silent: the lease ran out. Counts as an interruption.",
    AttemptEnd.CONTINUED: "The next attempt goes on where it ended. Counts as neither.",
    AttemptEnd.REPEATED: "A gate refused its output; `retry` dropped it. Counts as neither.",
    AttemptEnd.DEFERRED: "It met an outage, such as a store that is down. Counts as neither.",
}

#: Overlays, set by people and the engine; the diagram shows what workers do.
_OVERLAID: Final = frozenset(
    {RunEvent.PAUSED, RunEvent.RESUMED, RunEvent.CANCELLED, RunEvent.DEAD_LETTERED}
)


def lifecycle() -> str:
    """Return the state machine as a diagram and as a table: each event, in each status."""
    moves: dict[tuple[RunStatus, RunStatus], list[str]] = {}
    for (before, event), then in NEXT.items():
        if before is not then and event not in _OVERLAID:
            moves.setdefault((before, then), []).append(event.value)
    drawn = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in moves.items()]
    diagram = ["```mermaid", "stateDiagram-v2", "    [*] --> PENDING", *drawn]
    rows = [
        [event.value, *(NEXT.get((status, event), "") for status in RunStatus)]
        for event in RunEvent
    ]
    heads = ["event", *(f"in `{status}`" for status in RunStatus)]
    return "\n".join([*diagram, "    COMPLETED --> [*]", "```", "", _table(heads, rows)])


def statuses() -> str:
    """Return what each status means."""
    return _table(["status", "meaning"], [[f"`{s}`", STATUS_WORDS[s]] for s in RunStatus])


def overlays() -> str:
    """Return what each overlay means."""
    rows = [[f"`{to_camel(overlay.key)}`", overlay.tooltip] for overlay in OVERLAYS]
    return _table(["overlay", "meaning"], rows)


def run_events() -> str:
    """Return what can happen to a run, and who causes it."""
    rows = [[event.value, *EVENT_WORDS[event]] for event in RunEvent]
    return _table(["event", "by", "what it means"], rows)


def attempt_ends() -> str:
    """Return how an attempt can end without an output."""
    rows = [[f"`{end.value}`", END_WORDS[end]] for end in AttemptEnd]
    return _table(["end", "meaning"], rows)


def operations() -> str:
    """Return what people may do, and when."""
    rows = [[f"`{op.value}`", f"{ALLOWED[op][0]}", OPERATIONS[op].says] for op in Operation]
    return _table(["operation", "allowed when the run is", "effect"], rows)


def error_codes() -> str:
    """Return the errors of Leasehold, in the order of `errors.py`."""
    rows = [
        [f"`{error.code}`", f"`{name}`", _first_line(error), "yes" if error.retryable else "no"]
        for name, error in vars(errors).items()
        if isinstance(error, type)
        and issubclass(error, errors.LeaseholdError)
        and error is not errors.LeaseholdError
    ]
    return _table(["code", "class", "meaning", "retryable"], rows)


def handler_errors() -> str:
    """Return what handlers raise."""
    raised = (errors.AgentClientError, errors.PermanentError, errors.SoftTimeoutError)
    rows = [[f"`{error.__name__}`", _first_line(error)] for error in raised]
    return _table(["class", "meaning"], rows)


def trace_events() -> str:
    """Return the trace events."""
    rows = [
        [f"`{event.key}`", "derived" if event.planned else "stored", event.meaning]
        for event in TRACE_EVENTS
    ]
    return _table(["event", "kept", "meaning"], rows)


def dead_letters() -> str:
    """Return why runs are given up, and what to do then."""
    rows = [
        [
            f"`{entry.key}`",
            entry.label,
            entry.severity,
            entry.meaning,
            entry.remediation,
            ", ".join(f"`{s.name}`" for s in SETTINGS if entry.reason in s.decides),
        ]
        for entry in DEAD_LETTERS
    ]
    heads = ["reason", "label", "severity", "what has happened", "what to do", "decided by"]
    return _table(heads, rows)


def settings(*prefixes: str) -> str:
    """Return the settings of a bundle: all, or those whose names begin with one of these."""
    rows = [
        [f"`{s.name}`", f"`{s.default}`" if s.default else "", s.meaning, s.allowed]
        for s in SETTINGS
        if not prefixes or s.name.startswith(prefixes)
    ]
    return _table(["variable", "default", "meaning", "allowed"], rows)


def file_keys() -> str:
    """Return the keys of the configuration file that have names of their own."""
    rows = [
        [f"`{s.file_key}`", f"`{s.name}`", f"`{s.default}`", s.meaning, s.allowed]
        for s in sorted(SETTINGS, key=lambda one: one.file_key)
        if s.file_key
    ]
    return _table(["key", "variable", "default", "meaning", "allowed"], rows)


def layers() -> str:
    """Return the layers of the package as a diagram: the import contract of pyproject.toml."""
    boxes = [f'    l{i}["{" · ".join(layer)}"]' for i, layer in enumerate(_layers())]
    arrows = f"    {' --> '.join(f'l{i}' for i in range(len(boxes)))}"
    return "\n".join(["```mermaid", "flowchart TD", *boxes, arrows, "```"])


def packages() -> str:
    """Return what is in each package and each module beside them, the highest layer first."""
    rows = [
        [f"`{name}`", _first_sentence(path)]
        for layer in [*_layers(), ["testing"]]
        for name, path in map(_source, layer)
    ]
    return _table(["package", "what is in it"], rows)


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "layers": layers,
    "packages": packages,
    "lifecycle": lifecycle,
    "statuses": statuses,
    "overlays": overlays,
    "run-events": run_events,
    "attempt-ends": attempt_ends,
    "operations": operations,
    "errors": error_codes,
    "handler-errors": handler_errors,
    "events": trace_events,
    "dead-letters": dead_letters,
    "functions": deployed.functions,
    "settings": settings,
    "file-keys": file_keys,
    "permissions": deployed.permissions,
    "metrics": deployed.metrics,
    "alerts": deployed.alerts,
    "delivery-settings": partial(settings, "PIPELINE_DELIVERY_", "PIPELINE_CHANNEL_"),
    "build-options": deployed.build_options,
    "deployer-roles": partial(deployed.roles, deployed.DEPLOYER_ROLES),
    "builder-roles": partial(deployed.roles, deployed.BUILDER_ROLES),
    "calls-of-runs": partial(http_api.calls_of, CALLS),
    "calls-of-leases": partial(http_api.calls_of, LEASE_CALLS),
    "shapes": http_api.shapes,
    "error-statuses": http_api.error_statuses,
    **{f"limits-{story}": partial(limits.of, story) for story in limits.STORIES},
    **{name: partial(reference.page, name) for name in reference.PAGES},
    "cost-region": costs.region,
    "cost-in-one-line": costs.in_one_line,
    "cost-operations": costs.operations_table,
    "cost-per-thousand": costs.per_thousand_table,
    "cost-compute": costs.compute_table,
    "cost-alternatives": costs.alternatives_table,
    "cost-prices": costs.prices_table,
}


def fresh(text: str) -> str:
    """Return the text of a Markdown file with each generated part as the code has it now."""
    return _BLOCK.sub(
        lambda block: f"{block['begin']}{GENERATED[block['name']]()}\n{block['end']}", text
    )


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Write what is stale, or with `--check` say what is; return the exit code."""
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    stale = 0
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (drawn := fresh(text)) == text:
            continue
        if arguments:
            stale += 1
            sys.stdout.write(f"{path.name} is stale; run: python docs/generate.py\n")
        else:
            path.write_text(drawn, encoding="utf-8")
            sys.stdout.write(f"{path.name} written\n")
    return 1 if stale else 0


def _first_line(documented: type) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0]


def _layers() -> list[list[str]]:
    """Return the layers of the package, the highest first, each with its packages."""
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    layers = [layer.split(" | ") for layer in contract["layers"]]
    return [layer for layer in layers if layer != ["__main__"]]


def _source(module: str) -> tuple[str, Path]:
    """Return how a package or a module is written, and the file that has its docstring."""
    package = FOLDER.parent / "shared/leasehold" / module
    if package.is_dir():
        return f"{module}/", package / "__init__.py"
    return f"{module}.py", package.with_suffix(".py")


def _first_sentence(path: Path) -> str:
    documented = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return documented.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
