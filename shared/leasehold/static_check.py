"""`leasehold check`: the settings, catalog, handlers and chains of a project, before it runs.

The check imports the code of the user, opens no store and writes nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from leasehold.bootstrap import load_catalog
from leasehold.domain.json_text import canonical
from leasehold.errors import (
    CatalogError,
    EntryActionNotFoundError,
    GateModelError,
    HandlerNotFoundError,
    InvalidEntryError,
    LeaseholdError,
    MissingExtraError,
    PlatformLimitError,
    SenderNotFoundError,
    SettingError,
)
from leasehold.frozen import dataclass
from leasehold.registry.channels import (
    FILE_SUFFIX,
    NO_CHANNELS,
    ChannelEntry,
    is_set,
    require_packages,
)
from leasehold.registry.dispatch import (
    REMOTE,
    StepDispatchEntry,
    check_platform,
    deadline_cap,
)
from leasehold.registry.effective_settings import effective_settings
from leasehold.registry.gates import NO_GATES, GateEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry, catalog_problems
from leasehold.registry.registry import Registry
from leasehold.registry.schedules import NO_SCHEDULES
from leasehold.registry.setting_texts import IN_PROCESS
from leasehold.registry.settings import SETTINGS, read_settings
from leasehold.services.check_chain import broken_links, misfit_reviewer, missing_fields
from leasehold.worker.handler.call import entry_action_at
from leasehold.worker.handler.channel_senders import sender_of
from leasehold.worker.handler.checks import ImportedHandlerChecks
from leasehold.worker.handler.handlers import handler_of, imports_within, model_of

#: Where code lies that is not the user's own: Leasehold, libraries, Python itself.
_NOT_THE_USERS: Final = (
    str(Path(__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<",
)
_REFUSED: Final = "refused_override"

#: Where steps run.
REMOTE_WORKERS: Final = "remote workers"
CLOUD_FUNCTIONS: Final = "Cloud Functions"
OWN_PROCESSES: Final = ("leasehold serve", "in process")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Args:
        code: for machines; that of the error, where it is one.
        message: what it is and what to do, in one line.
        file: where, as a path; None: it is in no file.
        line: the line there.
    """

    code: str
    message: str
    file: str | None = None
    line: int | None = None


class Homes(NamedTuple):
    """Where a step may run, and where it may not for its dispatch deadline."""

    deadline: timedelta
    allowed: tuple[str, ...]
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of a check, and how much it looked at.

    `homes` says of each step where its limits allow it to run, and `reuse` how many attempts one
    process may serve, of the steps where these are several. `warnings` are of this environment
    alone, and nothing that is wrong with the project.
    """

    findings: tuple[Finding, ...]
    steps: int = 0
    gates: int = 0
    pipelines: int = 0
    channels: int = 0
    homes: Mapping[str, Homes] = field(default_factory=dict)
    reuse: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def check_project(environ: Mapping[str, str]) -> CheckResult:
    """Check all that can be checked without running anything.

    Args:
        environ: the settings; LEASEHOLD_CATALOG names the catalog.

    Raises:
        CatalogError: there is no catalog of that name: nothing could be checked.
    """
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        findings = [*_settings(environ)]
        name = environ.get("LEASEHOLD_CATALOG", SETTINGS["LEASEHOLD_CATALOG"].default)
        return _checked(name, environ, findings)
    finally:
        sys.dont_write_bytecode = writes


def _checked(name: str, environ: Mapping[str, str], findings: list[Finding]) -> CheckResult:
    """Return all that was found, the catalog included."""
    try:
        catalog = load_catalog(name)
    except LeaseholdError as error:
        if _is_missing(name, error):
            raise
        if place := _place_in(error):  # its import ended there: nothing else of it is known
            return CheckResult((*findings, _finding(error, place)))
        return CheckResult((*findings, *_registries(sys.modules[name], environ, error)))
    findings += [
        *_home(environ, catalog),
        *_limits(catalog.steps, environ),
        *unresolved(catalog, name),
    ]
    return CheckResult(
        tuple(findings),
        steps=len(catalog.steps),
        gates=len(catalog.gates),
        pipelines=len(catalog.pipelines),
        channels=len(catalog.channels),
        homes={entry.step_type: _homes_of(entry) for entry in catalog.steps},
        reuse={entry.step_type: entry.reuse for entry in catalog.steps if entry.reuse > 1},
        warnings=(
            *_missing_packages(catalog.channels),
            *_unset_variables(catalog.channels, environ),
        ),
    )


def unresolved_lines() -> list[str]:
    """Return a line for each thing that does not resolve; all handlers are imported, each in time.

    Raises:
        SettingError, CatalogError, and the errors of the registries.
    """
    settings = read_settings(os.environ, lambda _: None)
    name = settings["LEASEHOLD_CATALOG"]
    with contextlib.redirect_stdout(sys.stderr):  # what modules print while they are imported
        catalog = load_catalog(name)
        with imports_within(settings["PIPELINE_IMPORT_TIMEOUT_S"].total_seconds()):
            return [line_of(one) for one in unresolved(catalog, name)]


def unresolved(catalog: Catalog, name: str) -> Iterator[Finding]:
    """Yield what a catalog names and cannot be called, or could never be given; all is imported.

    Args:
        catalog: the catalog.
        name: the module that it was loaded from.
    """
    file = _file_of(name)
    yield from _handlers(file, catalog.steps)
    yield from _gates(file, catalog.gates)
    yield from _summaries(file, catalog.pipelines)
    yield from _channels(file, catalog.channels)
    yield from _schedules(file, catalog)
    yield from _gates_of_steps(catalog)
    yield from _chains(catalog)


def line_of(finding: Finding) -> str:
    """Return a finding as tools for errors read it: file, line, what."""
    places = [str(part) for part in (finding.file, finding.line) if part is not None]
    return ": ".join([":".join(places), finding.message] if places else [finding.message])


def _registries(
    module: ModuleType, environ: Mapping[str, str], error: LeaseholdError
) -> Iterator[Finding]:
    """Yield the problems of registries that are not a catalog together."""
    file = _file_of(module.__name__)
    if not isinstance(error, InvalidEntryError):
        yield _finding(error, (file, None))
        return
    steps, gates = module.STEPS, getattr(module, "GATES", NO_GATES)
    channels = getattr(module, "CHANNELS", NO_CHANNELS)
    schedules = getattr(module, "SCHEDULES", NO_SCHEDULES)
    problems = [*catalog_problems(steps, module.PIPELINES, gates, channels, schedules)]
    for problem in problems:
        yield _finding(problem, _line_with(file, problem.details["key"]))
    if all(problem.details["field"] != "class" for problem in problems):
        yield from _limits(steps, environ)
        yield from _handlers(file, steps)
        yield from _gates(file, gates)
        yield from _summaries(file, module.PIPELINES)
        yield from _channels(file, channels)


def _schedules(file: str | None, catalog: Catalog) -> Iterator[Finding]:
    """Yield the schedules whose input does not fit the first step of their pipeline."""
    for one in catalog.schedules:
        if problem := misfit_of_input(catalog, one.pipeline, one.input):
            message = f"input of {one.name!r} in the schedules registry does not fit {problem}"
            yield Finding("invalid_input", message, *_line_with(file, one.name))


def misfit_of_input(catalog: Catalog, pipeline: str, given: object) -> str | None:
    """Return the model that an input does not fit, of which step, and why; or None.

    Args:
        catalog: it has the pipeline.
        pipeline: its name.
        given: JSON values.
    """
    types = catalog.pipelines[pipeline].entries[0].step_types
    first = catalog.steps.get(types[0]) if types else None
    if first is None or first.handler == REMOTE:
        return None
    try:
        misfit = ImportedHandlerChecks().problem_with(first, canonical(given))
    except LeaseholdError:  # another finding says that
        return None
    if misfit is None:
        return None
    return f"{misfit.model} of step {first.step_type!r}: {misfit.problem}"


def _settings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each setting that is wrong by itself, or beside the others."""
    usable = dict(environ)
    while True:
        refused: list[str] = []
        try:
            read_settings(usable, refused.append)
        except SettingError as error:
            yield _finding(error)
            if usable.pop(error.details["name"], None) is None:
                return  # it is not set, and must be
            continue
        yield from (Finding("bad_setting", sentence) for sentence in refused)
        return


def _home(environ: Mapping[str, str], catalog: Catalog) -> Iterator[Finding]:
    """Yield what the platform does not allow that the settings name."""
    try:
        if _is_on_platform(environ):
            check_platform(catalog.steps)
    except PlatformLimitError as error:
        yield _finding(error)


def _is_on_platform(environ: Mapping[str, str]) -> bool:
    return environ.get("LEASEHOLD_TASKS", IN_PROCESS).startswith("cloud-tasks://")


def _homes_of(entry: StepDispatchEntry) -> Homes:
    if entry.handler == REMOTE:
        return Homes(entry.dispatch_deadline, (REMOTE_WORKERS,), ())
    is_short = entry.dispatch_deadline <= deadline_cap(entry, on_platform=True)
    functions = (CLOUD_FUNCTIONS,)
    return Homes(
        entry.dispatch_deadline,
        (*OWN_PROCESSES, *(functions if is_short else ())),
        () if is_short else functions,
    )


def _limits(steps: Registry[StepDispatchEntry], environ: Mapping[str, str]) -> Iterator[Finding]:
    for entry in steps:
        limits = effective_settings(
            entry, environ, max_retries=0, on_platform=_is_on_platform(environ)
        )
        yield from (Finding(_REFUSED, sentence) for sentence in limits.refused)


def _handlers(file: str | None, steps: Registry[StepDispatchEntry]) -> Iterator[Finding]:
    for entry in steps:
        yield from _handler(entry, _line_with(file, entry.step_type))


def _gates(file: str | None, gates: Registry[GateEntry]) -> Iterator[Finding]:
    for gate in gates:
        try:
            handler_of(gate)
        except HandlerNotFoundError as error:
            yield _finding(error, _place_in(error) or _line_with(file, gate.name))


def _summaries(file: str | None, pipelines: Registry[PipelineEntry]) -> Iterator[Finding]:
    for entry in pipelines:
        try:
            if entry.summary:
                handler_of(entry.summary_function)
        except HandlerNotFoundError as error:
            yield _finding(error, _place_in(error) or _line_with(file, entry.name))


def _channels(file: str | None, channels: Registry[ChannelEntry]) -> Iterator[Finding]:
    for channel in channels:
        try:
            if channel.function:
                sender_of(channel)
        except SenderNotFoundError as error:
            yield _finding(error, _place_in(error) or _line_with(file, channel.name))


def _missing_packages(channels: Registry[ChannelEntry]) -> Iterator[str]:
    """Yield a line for each channel that cannot send from here: elsewhere it may."""
    for channel in channels:
        try:
            require_packages(channel)
        except MissingExtraError as error:
            yield error.message


def _unset_variables(channels: Registry[ChannelEntry], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variable that is not set here: elsewhere it may be."""
    for channel in channels:
        for name in channel.variables:
            if not is_set(environ, name):
                either = f"set it, or {name}{FILE_SUFFIX}, where announcements are sent"
                yield f"channel {channel.name}: {name} is not set here; {either}"


def _gates_of_steps(catalog: Catalog) -> Iterator[Finding]:
    """Yield a finding for each gate that no output of its step fits."""
    for step in catalog.steps:
        for gate in (catalog.gates[name] for name in step.gates):
            link = ImportedHandlerChecks().broken_link(step, gate)
            if link is not None:
                error = GateModelError(gate=gate.name, step=step.step_type, **link._asdict())
                yield _finding(error, _place_of(handler_of(gate).function))


def _chains(catalog: Catalog) -> Iterator[Finding]:
    for step in catalog.steps:
        for missing in missing_fields(step, ImportedHandlerChecks()):
            yield _finding(missing, _place_of_step(step))
    for pipeline in catalog.pipelines:
        for broken in broken_links(catalog, ImportedHandlerChecks(), pipeline):
            following = catalog.steps[pipeline.step_type_of(broken.details["following"])]
            yield _finding(broken, _place_of(handler_of(following).function))
        if misfit := misfit_reviewer(catalog, ImportedHandlerChecks(), pipeline):
            yield _finding(misfit, _place_of_step(catalog.steps[misfit.details["step"]]))


def _place_of_step(entry: StepDispatchEntry) -> _Place:
    """Return where the handler of a step is defined; a remote one is defined nowhere here."""
    return _NOWHERE if entry.handler == REMOTE else _place_of(handler_of(entry).function)


def _handler(entry: StepDispatchEntry, place: _Place) -> Iterator[Finding]:
    try:
        if entry.handler != REMOTE:
            handler_of(entry)
        elif entry.output:
            model_of(entry, entry.output)
    except HandlerNotFoundError as error:
        yield _finding(error, _place_in(error) or place)
    for path in entry.entry_actions:
        try:
            entry_action_at(entry, path)
        except EntryActionNotFoundError as error:
            yield _finding(error, _place_in(error) or place)


#: A file and a line of it, as far as they are known.
_Place = tuple[str | None, int | None]

_NOWHERE: Final[_Place] = (None, None)


def _finding(error: LeaseholdError, place: _Place = _NOWHERE) -> Finding:
    file, line = place
    return Finding(error.code, error.message, None if file is None else _near(file), line)


def _is_missing(name: str, error: LeaseholdError) -> bool:
    """Return whether there is no module of the catalog's name, or none that is a catalog."""
    cause = error.__cause__
    if not isinstance(error, CatalogError):
        return False
    if cause is None:
        return True
    if isinstance(cause, ModuleNotFoundError):
        return cause.name is None or f"{name}.".startswith(f"{cause.name}.")
    # the name itself is none that can be imported; else the catalog has raised it
    return isinstance(cause, TypeError | ValueError) and _place_in(error) is None


def _place_in(error: BaseException) -> _Place | None:
    """Return the line of the user's own code that an error came from, or None."""
    cause = error.__cause__ or error
    if isinstance(cause, SyntaxError) and cause.filename:
        return cause.filename, cause.lineno
    frames = traceback.extract_tb(cause.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    return (users[-1].filename, users[-1].lineno) if users else None


def _place_of(function: Any) -> _Place:
    """Return where a function is defined."""
    function = inspect.unwrap(function) if isinstance(function, FunctionType) else function
    code = getattr(function, "__code__", None)
    return _NOWHERE if code is None else (code.co_filename, code.co_firstlineno)


def _file_of(name: str) -> str | None:
    return getattr(sys.modules.get(name), "__file__", None)


def _line_with(file: str | None, key: str) -> _Place:
    """Return the first line of the catalog that has the key in quotes."""
    if file is None:
        return _NOWHERE
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return file, None
    found = (at for at, line in enumerate(lines, 1) if f'"{key}"' in line or f"'{key}'" in line)
    return file, next(found, None)


def _near(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
