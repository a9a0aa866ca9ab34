"""A checkpoint on its way: its file, if it is large, then its place in the run, then tidying up.

A file is written under a new name before the run refers to it, and the one that it takes the place
of is deleted after that: whenever a worker is killed, the run refers to a whole file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from leasehold.domain.json_text import check_json, not_json
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.kept_work import Checkpoint
from leasehold.domain.life import step_folder
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.errors import InvalidRequestError, LeaseLostError
from leasehold.services import temporary_files
from leasehold.services.engine import Engine
from leasehold.services.kept_values import inline
from leasehold.services.recorded_files import may_refer_to
from leasehold.services.temporary_files import PackedFile

#: The fenced write; it returns the checkpoint that it takes the place of.
SaveCheckpoint = Callable[[KeptValue, Notes], Checkpoint | None]


class CheckpointWrite:
    """One checkpoint of an attempt (`ports/lease_keeper.py`).

    Args:
        engine: the parts.
        run: the run, as it is known under the lease.
        results: JSON text.
        save: the fenced write.

    Raises:
        InvalidRequestError: the results are not JSON.
    """

    def __init__(self, engine: Engine, run: Manifest, results: str, save: SaveCheckpoint) -> None:
        self._engine = engine
        self._save = save
        self._folder = step_folder(run, run.current_step, run.trial)
        self._run_id = run.run_id
        self._file: PackedFile | None = None
        self._is_sent = False
        self._is_refused = False
        self._unused: str | None = None
        self._kept = inline(results, beside=run.with_(checkpoint=None).text_bytes)
        if self._kept:
            check_results(results)
        else:
            self._file = _packed(engine, run, results)

    @property
    def leaves_file(self) -> bool:
        """Whether `store` makes a temporary file: it may be there, and nobody know of it."""
        return self._file is not None

    def store(self) -> None:
        """Store the file of large results, where the run has no room for them."""
        if self._file and not self._kept:
            self._kept = temporary_files.put(self._engine.artifacts, self._file)

    def record(self, notes: Notes = NO_NOTES) -> None:
        """Have the run refer to the results, and keep the notes of the attempt."""
        assert self._kept is not None  # noqa: S101 - it is stored by now
        self._is_sent = True
        try:
            before = self._save(self._kept, notes)
        except (LeaseLostError, InvalidRequestError):
            self._is_refused = True
            raise
        replaced = None if before is None else before.partial_results.ref
        if replaced != self._kept.ref:  # its own, where a write whose answer was lost is repeated
            self._unused = replaced

    def tidy_up(self) -> None:
        """Delete the file that the run refers to no more; its own, where that was refused.

        So is one whose attempt was over before it was stored. Where nobody can tell, it stays until
        the step is over.
        """
        if self._file and self._is_unneeded(self._file.name):
            self._unused = self._file.name
        unused, self._unused = self._unused, None
        if unused and unused.startswith(f"{self._folder}/"):
            temporary_files.discard(self._engine.artifacts, unused, self._engine.errand)

    def _is_unneeded(self, name: str) -> bool:
        """Return whether the run surely does not refer to its own file."""
        if not self._is_sent:
            return True
        return self._is_refused and not may_refer_to(self._engine, self._run_id, name)


def check_results(text: str) -> None:
    """Refuse partial results that are not JSON, with InvalidRequestError."""
    try:
        check_json(text)
    except ValueError as error:
        raise not_json("partial_results", error) from None


def _packed(engine: Engine, run: Manifest, text: str) -> PackedFile:
    """Return the file of large results; they are packed while they are checked."""
    files: list[PackedFile] = []

    def pack() -> None:
        files.append(temporary_files.pack(run, engine.clock.new_id(), text))

    calls: list[Callable[[], None]] = [pack, partial(check_results, text)]
    engine.side_by_side(lambda: calls.pop(0) if calls else None, len(calls))
    return files[0]
