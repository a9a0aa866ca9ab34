"""The archive of an ended run: all steps of it, whatever fails, once people have been told.

Nobody waits for it. What fails, and what a kill cuts short, is done by the sweep: each step may be
done again, and changes nothing then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Archive
from leasehold.domain.life import checkpoints_folder, files_folder
from leasehold.domain.status import Outcome
from leasehold.errors import ArtifactNameError, LeaseholdError, UnknownRunError
from leasehold.ports.artifacts import Artifacts


class ArchiveParts(Protocol):
    """What of an engine an archive needs; see there."""

    @property
    def artifacts(self) -> Artifacts:
        """The store of artifacts."""
        ...

    @property
    def errand(self) -> Callable[[Callable[[], object]], bool]:
        """Makes a call that nobody needs the end of, and returns whether it is over."""
        ...

    @property
    def rules(self) -> Rules:
        """What transitions need to know."""
        ...

    @property
    def log(self) -> Callable[[str], object]:
        """Takes a line that a person should look at."""
        ...


def archive_run(engine: ArchiveParts, owed: Archive, note: Callable[[Transition], Change]) -> bool:
    """Do each step of the archive, then note what came of it.

    Args:
        engine: the parts.
        owed: what is to be archived.
        note: commits a transition of the run.

    Returns:
        Whether the run is archived; if not, the sweep tries it again.
    """
    failed: dict[str, str] = {}
    late = [name for name, step in STEPS.items() if not _do(engine, name, step, owed, failed)]
    outcome = partial(
        lifecycle.note_archive, rules=engine.rules, life=owed.life, failed=failed, is_over=not late
    )
    try:
        return note(outcome).outcome is Outcome.ARCHIVED
    except UnknownRunError:  # it was purged meanwhile
        return False
    except LeaseholdError as error:
        engine.log(f"run {owed.run_id} is archived later: {error}")
        return False


def _compress_artifacts(artifacts: Artifacts, owed: Archive) -> None:
    with suppress(ArtifactNameError):  # behind a link nothing is the run's, now or later
        artifacts.compress(files_folder(owed), owed.outputs)


def _delete_checkpoints(artifacts: Artifacts, owed: Archive) -> None:
    with suppress(ArtifactNameError):  # as above
        folder = checkpoints_folder(owed)
        if not owed.kept:
            artifacts.delete(folder)
            return
        artifacts.delete_file(f"{folder}/none")  # refused behind a link; a list is an outage there
        for name in artifacts.list(folder):
            if name not in owed.kept:
                artifacts.delete(name)


Step = Callable[[Artifacts, Archive], None]

#: What is done with the artifacts of a run, in order.
STEPS: Final[Mapping[str, Step]] = {
    "compress_artifacts": _compress_artifacts,
    "delete_checkpoints": _delete_checkpoints,
}


def _do(engine: ArchiveParts, name: str, step: Step, owed: Archive, failed: dict[str, str]) -> bool:
    """Do one step; return whether it is over: one that hangs goes on without the caller."""
    if not (owed.has_temporary if step is _delete_checkpoints else owed.has_files):
        return True
    try:
        is_over = engine.errand(partial(step, engine.artifacts, owed))
    except Exception as error:  # noqa: BLE001 - whatever fails, the other steps are done
        is_known = isinstance(error, LeaseholdError)
        failed[name] = str(error) if is_known else f"{type(error).__name__}: {error}"
        engine.log(f"{name} of run {owed.run_id} is done later: {failed[name]}")
        return True
    if not is_over:
        engine.log(f"{name} of run {owed.run_id} has not ended yet; the sweep looks again")
    return is_over
