"""The tables of a deployment: `deployment.py` of a project, or what the package has."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from leasehold.domain.cron import CronError, parse_cron
from leasehold.domain.json_text import canonical
from leasehold.errors import MAX_VALUE_SHOWN_CHARS, LeaseholdError, SettingError
from leasehold.frozen import dataclass
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.worker.handler.user_modules import ImportRaisedError, run_users

FILE: Final = "deployment.py"
#: A table that is older than this function has no row of it, and may stay so: nothing needs it.
_LEFT_OUT: Final = frozenset({"derive_budgets"})


@dataclass(frozen=True, slots=True)
class Tables:
    """What is deployed.

    Args:
        functions: a row each.
        concurrency: by the id of a queue, how many of its tasks run at once.
        variables: what every function has in its environment besides.
        extras: of leasehold, which the pipelines need.
        smoke: the pipeline and input of the run that a build ends with; None: it starts none.
    """

    functions: FunctionTable = FUNCTIONS
    concurrency: Mapping[str, int] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    extras: Sequence[str] = ()
    smoke: tuple[str, Any] | None = None


DEFAULTS: Final = Tables()


def read_tables(folder: Path) -> Tables:
    """Return the tables of a project; where it has no `deployment.py`, those of the package.

    Raises:
        SettingError: the file cannot be imported, or a table in it is none.
        InvalidEntryError: a row of it cannot be right.
    """
    path = folder / FILE
    if not path.is_file():
        return DEFAULTS
    found = _imported(path)
    functions = found.get("FUNCTIONS")
    if not isinstance(functions, FunctionTable):
        raise _refusal("FUNCTIONS", functions, "FUNCTIONS = FunctionTable([…])")
    for function in FUNCTIONS:
        if function.name not in functions and function.name not in _LEFT_OUT:
            allowed = "a row for each function of the package"
            raise _refusal("FUNCTIONS", f"a table with no row {function.name}", allowed)
    for function in functions.called_by(Trigger.SCHEDULE):
        _check_times(function)
    concurrency, variables = found.get("CONCURRENCY", {}), found.get("VARIABLES", {})
    for name, table in (("CONCURRENCY", concurrency), ("VARIABLES", variables)):
        if not isinstance(table, Mapping) or not _are_texts(table):
            raise _refusal(name, table, f"{name} = {{…}}")
    extras, smoke = found.get("EXTRAS", ()), found.get("SMOKE")
    if isinstance(extras, str) or not isinstance(extras, Sequence) or not _are_texts(extras):
        raise _refusal("EXTRAS", extras, 'EXTRAS = ("llm",)')
    if smoke is not None and not _is_pair(smoke):
        raise _refusal("SMOKE", smoke, 'SMOKE = ("summary", {"text": "One."})')
    return Tables(functions, concurrency, variables, extras, smoke)


def _are_texts(names: Iterable[object]) -> bool:
    return all(isinstance(name, str) for name in names)


def _is_pair(smoke: object) -> bool:
    """Return whether it is the name of a pipeline, and an input that JSON can have."""
    if not (isinstance(smoke, tuple) and len(smoke) == 2 and isinstance(smoke[0], str)):  # noqa: PLR2004 - name and input
        return False
    try:
        return bool(canonical(smoke[1]))
    except (ValueError, TypeError):
        return False


def _imported(path: Path) -> Mapping[str, Any]:
    """Run the file, and keep nothing of it: a folder that is looked at stays as it is."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return run_users(path)
    except ImportRaisedError as raised:
        error = raised.__cause__ or raised
        if isinstance(error, LeaseholdError):
            raise error from error.__cause__
        from leasehold.worker.failures.failures import words_of_import  # noqa: PLC0415 - when it is needed

        why = words_of_import(error, path.stem)
        allowed = "what Python can import; `leasehold deploy init` writes one where there is none"
        raise SettingError(name=FILE, value=why, allowed=allowed) from error


def _check_times(function: FunctionEntry) -> None:
    """Refuse a schedule that has five fields, and names no times."""
    try:
        parse_cron(function.schedule)
    except CronError as error:
        function.refuse("schedule", f"cron's five fields, as '*/5 * * * *' ({error})")


def _refusal(table: str, value: object, allowed: str) -> SettingError:
    """Return the error of a table; of a long value, as a whole table, it has the beginning."""
    shown = repr(value)
    if len(shown) > MAX_VALUE_SHOWN_CHARS:
        value = f"{shown[:MAX_VALUE_SHOWN_CHARS]}…"
    return SettingError(name=f"{table} of {FILE}", value=value, allowed=allowed)
