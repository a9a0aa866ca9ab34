"""What a run made: the outputs of its steps, and the files that its handlers stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice

from leasehold.attempt.values import load
from leasehold.domain.artifact_name import check_artifact_name, files_folder
from leasehold.domain.checkpoint import CallResult, KeptValue
from leasehold.domain.manifest import Manifest
from leasehold.domain.recorded_calls import calls_of, prefix_of_life, recorded_call
from leasehold.domain.status import RunStatus
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    ArtifactNotFoundError,
    OutputGoneError,
    RunNotCompletedError,
    RunUnfinishedError,
    StepNotCompletedError,
    UnknownFileError,
    UnknownStepError,
)
from leasehold.frozen import dataclass
from leasehold.ports.artifacts import ArtifactContent
from leasehold.ports.documents import Query
from leasehold.services.engine import Engine, find_run
from leasehold.services.paging import place_behind, place_of, token_of
from leasehold.services.request_bounds import MAX_PAGE_ITEMS


@dataclass(frozen=True, slots=True)
class FilePage:
    """Some files of a run and their sizes in bytes, sorted by name; `next_page_token` as of runs.

    It is the name behind which the next page begins.
    """

    sizes: Mapping[str, int]
    next_page_token: str | None


def read_output(engine: Engine, run_id: str, step: str | None = None) -> str:
    """Return the output of a step as JSON text, wherever it is kept.

    Args:
        engine: the parts.
        run_id: the run.
        step: one of its steps, whose output may wait for a decision; None: the output of the run,
            which is that of its last step once it is completed.

    Raises:
        UnknownRunError, UnknownStepError: there is none.
        RunUnfinishedError, RunNotCompletedError, StepNotCompletedError: it has no output.
        OutputGoneError: the artifact that holds it was deleted.
        StoreUnavailableError: it cannot be read now.
    """
    run = find_run(engine, run_id).manifest
    if step is None:
        check_completed(run)
        step = run.plan[-1]
    return _output(engine, run, step)


def read_input(engine: Engine, run_id: str) -> str:
    """Return what a run was started with as JSON text, wherever it is kept.

    Raises:
        UnknownRunError: there is no such run.
        ArtifactNotFoundError: the artifact that holds it was deleted.
        StoreUnavailableError: it cannot be read now.
    """
    run = find_run(engine, run_id).manifest
    return load(engine.artifacts, KeptValue(text=run.input, ref=run.input_ref))


def list_files(
    engine: Engine, run_id: str, *, limit: int = MAX_PAGE_ITEMS, page_token: str | None = None
) -> FilePage:
    """Return the files that the run's handlers stored, and not the values the engine keeps.

    Args:
        engine: the parts.
        run_id: the run.
        limit: how many at most.
        page_token: of an earlier page; None: the first one.

    Raises:
        UnknownRunError: there is none.
        StoreUnavailableError: they cannot be listed now.
    """
    folder = files_folder(find_run(engine, run_id).manifest)
    start = len(folder) + 1
    found = ((name[start:], size) for name, size in engine.artifacts.sizes(folder).items())
    rest = (file for file in found if page_token is None or file[0] > page_token)
    page = dict(islice(rest, limit))
    is_last = next(rest, None) is None
    return FilePage(page, None if is_last else next(reversed(page)))


@dataclass(frozen=True, slots=True)
class CallPage:
    """Some recorded calls of a run, the first ones first; `next_page_token` as of runs."""

    calls: list[CallResult]
    next_page_token: str | None


def list_calls(
    engine: Engine, run_id: str, *, limit: int = MAX_PAGE_ITEMS, page_token: str | None = None
) -> CallPage:
    """Return the recorded calls that the run has, in the order in which they were recorded.

    Raises:
        UnknownRunError: there is none.
        InvalidRequestError: the token is of no such page.
        StoreUnavailableError: they cannot be listed now.
    """
    run = find_run(engine, run_id).manifest
    after = None if page_token is None else place_of(page_token, run.life)
    query = Query(calls_of(run_id), order_by="at", limit=limit, after=after)
    found = engine.documents.query(query)
    own = [one for one in found if one.ref.id.startswith(prefix_of_life(run.life))]
    in_run = list(run.position.calls) if page_token is None else []
    known = [call for one in own if (call := recorded_call(one.document))]
    token = token_of(place_behind(found[-1], "at"), run.life) if len(found) == limit else None
    return CallPage(in_run + known, token)


@contextmanager
def open_file(engine: Engine, run_id: str, name: str) -> Iterator[ArtifactContent]:
    """Open a file of the run, to be read in blocks.

    Raises:
        UnknownRunError, UnknownFileError: there is none.
        ArtifactNameError: nothing can have that name; no name leads out of the run.
        StoreUnavailableError: it cannot be read now.
    """
    run = find_run(engine, run_id).manifest
    check_artifact_name(name)
    opened = engine.artifacts.open(f"{files_folder(run)}/{name}")
    with ExitStack() as stack:
        try:
            content = stack.enter_context(opened)
        except ArtifactNotFoundError:
            raise UnknownFileError(run_id=run.run_id, name=name[:MAX_VALUE_SHOWN_CHARS]) from None
        yield content


def check_completed(run: Manifest) -> None:
    """Raise why a run has no result: RunUnfinishedError, or RunNotCompletedError once it ended."""
    if run.status is RunStatus.COMPLETED:
        return
    why = _why(run)
    facts = {
        "run_id": run.run_id,
        "state": run.state,
        "step": run.position.step,
        "why": f": {why.rstrip('.')}" if why else "",
        "reason": run.dead_letter_reason,
        "error": None if run.error is None else run.error.model_dump(mode="json", by_alias=True),
    }
    if run.is_terminal:
        raise RunNotCompletedError(**facts)
    raise RunUnfinishedError(**facts, remedy=_remedy(run))


def _why(run: Manifest) -> str | None:
    """Return why a run does not go on; None: it does, or nothing more is to be said."""
    if run.dead_letter_reason is not None:
        return f"{run.dead_letter_reason}: {run.dead_letter_detail or _failure(run)}"
    if run.cancelled or run.paused:
        return None
    if run.block is not None:
        return f"{run.block.code}: {run.block.finding}"
    return _failure(run)


def _failure(run: Manifest) -> str | None:
    return None if run.error is None else f"{run.error.type}: {run.error.message}"


def _remedy(run: Manifest) -> str:
    if run.paused:
        return "Resume it."
    if run.block is None:
        return "Wait for it first."
    if run.steps[run.position.step].kept_output is None:
        return run.block.remediation
    command = f"leasehold output {run.run_id} {run.position.step}"
    return f"{run.block.remediation} What waits for a decision: `{command}`."


def _output(engine: Engine, run: Manifest, step: str) -> str:
    record = run.steps.get(step)
    if record is None or step not in run.plan:
        known = ", ".join(run.plan)
        raise UnknownStepError(run_id=run.run_id, step=step[:MAX_VALUE_SHOWN_CHARS], known=known)
    kept = record.kept_output
    if kept is None:
        raise StepNotCompletedError(
            run_id=run.run_id, step=step, status=record.status.value, state=run.state
        )
    try:
        return load(engine.artifacts, kept)
    except (ArtifactNotFoundError, UnicodeDecodeError) as error:
        problem = getattr(error, "message", "").rstrip(".") or "its artifact is not text"
        raise OutputGoneError(run_id=run.run_id, step=step, problem=problem) from error
