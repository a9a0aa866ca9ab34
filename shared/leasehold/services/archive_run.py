"""The archive of an ended run: all steps of it, whatever fails, once the end was announced.

It runs in the background. The sweep repeats steps that failed or were cut short by a kill: a step
that is done again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import checkpoints_folder, files_folder
from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Archive
from leasehold.domain.recorded_calls import calls_of, is_temporary_call, prefix_of_life
from leasehold.domain.status import Outcome
from leasehold.errors import ArtifactNameError, LeaseholdError, UnknownRunError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Threads
from leasehold.ports.documents import Documents, Query
from leasehold.services.paging import SCAN_PAGE, pages


def archive_run(
    owed: Archive,
    artifacts: Artifacts,
    documents: Documents,
    *,
    rules: Rules,
    threads: Threads,
    log: Callable[[str], object],
    note: Callable[[Transition], Change],
) -> bool:
    """Do each step of the archive, then note what came of it.

    Args:
        owed: what is to be archived.
        artifacts: where its files lie.
        documents: where its recorded calls lie.
        rules: what transitions need to know.
        threads: what makes the steps, which may hang.
        log: given a line that a person should look at.
        note: commits a transition of the run.

    Returns:
        Whether the run is archived; if not, the sweep tries it again.
    """
    failed: dict[str, str] = {}
    is_over = True
    due = {
        "compress_artifacts": owed.has_files and partial(_compress_artifacts, artifacts, owed),
        "delete_checkpoints": owed.has_temporary
        and partial(_delete_checkpoints, artifacts, documents, owed),
        "delete_calls": owed.has_calls and partial(_delete_calls, documents, owed),
    }
    for name, step in due.items():
        if not step:
            continue
        try:
            if not threads.errand(step):
                is_over = False
                log(f"{name} of run {owed.run_id} has not ended yet; the sweep looks again")
        except Exception as error:  # noqa: BLE001 - whatever fails, the other steps are done
            is_known = isinstance(error, LeaseholdError)
            failed[name] = str(error) if is_known else f"{type(error).__name__}: {error}"
            log(f"{name} of run {owed.run_id} is done later: {failed[name]}")
    outcome = partial(
        lifecycle.note_archive, rules=rules, life=owed.life, failed=failed, is_over=is_over
    )
    try:
        return note(outcome).outcome is Outcome.ARCHIVED
    except UnknownRunError:  # it was purged meanwhile
        return False
    except LeaseholdError as error:
        log(f"run {owed.run_id} is archived later: {error}")
        return False


def _compress_artifacts(artifacts: Artifacts, owed: Archive) -> None:
    with suppress(ArtifactNameError):  # behind a link nothing is the run's, now or later
        artifacts.compress(files_folder(owed), owed.outputs)


def _delete_checkpoints(artifacts: Artifacts, documents: Documents, owed: Archive) -> None:
    with suppress(ArtifactNameError):  # as above
        folder = checkpoints_folder(owed)
        if not owed.kept and not owed.trial_folder:
            artifacts.delete(folder)
            return
        artifacts.delete_file(f"{folder}/none")  # refused behind a link; a list is an outage there
        names = set(artifacts.list(folder)) - {*owed.kept}
        if owed.trial_folder and any(name.startswith(f"{owed.trial_folder}/") for name in names):
            names -= _files_of_calls(documents, owed)
        for name in sorted(names):
            artifacts.delete(name)


def _files_of_calls(documents: Documents, owed: Archive) -> set[str]:
    """Return the files that the recorded calls of a run refer to."""
    prefix = prefix_of_life(owed.life)
    query = Query(calls_of(owed.run_id), id_prefix=prefix, limit=SCAN_PAGE, fields=("ref",))
    found = (one.document.get("ref") for page in pages(documents, query) for one in page)
    return {str(ref) for ref in found if ref}


def _delete_calls(documents: Documents, owed: Archive) -> None:
    delete_calls(documents, owed.run_id, prefix_of_life(owed.life), is_wanted=is_temporary_call)


def delete_calls(
    documents: Documents,
    run_id: str,
    prefix: str,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> None:
    """Delete the recorded calls of a run whose names begin so and are wanted."""
    query = Query(calls_of(run_id), id_prefix=prefix, limit=SCAN_PAGE, fields=("at",))
    for page in pages(documents, query):
        documents.delete_all([one.ref for one in page if is_wanted(one.ref.id)])
