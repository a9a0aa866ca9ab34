"""The result of a call made once on its way: in the manifest, or as a file that it refers to."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.domain.kept_work import CallResult
from leasehold.domain.life import values_folder
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_room import fits_inline
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.errors import LeaseLostError, TooManyCallsError
from leasehold.services import temporary_files
from leasehold.services.engine import Engine
from leasehold.services.recorded_files import may_refer_to
from leasehold.services.temporary_files import PackedFile


class CallWrite:
    """One result of an attempt (`ports/lease_keeper.py`).

    Args:
        engine: the parts.
        run: the run, as it is known under the lease.
        call: the result, JSON text.
        save: the fenced write.
    """

    def __init__(
        self,
        engine: Engine,
        run: Manifest,
        call: CallResult,
        save: Callable[[CallResult, Notes], None],
    ) -> None:
        self._engine = engine
        self._run = run
        self._call = call
        self._save = save
        self._file: PackedFile | None = None
        self._is_sent = False
        if not fits_inline(call.size):
            self._pack()

    @property
    def leaves_file(self) -> bool:
        """Whether `store` makes a temporary file: it may be there, and nobody know of it."""
        return self._file is not None and not self._call.keep

    def store(self) -> None:
        """Store the file of a large result; StoreUnavailableError: call it again."""
        if self._file:
            temporary_files.put(self._engine.artifacts, self._file)

    def record(self, notes: Notes = NO_NOTES) -> bool:
        """Have the run keep the result; False: it has no room for that, so `store` is next.

        Raises:
            TooManyCallsError: it has no room for a reference either.
            LeaseLostError, StoreUnavailableError: as all writes.
        """
        self._is_sent = self._file is not None
        try:
            self._save(self._call, notes)
        except (LeaseLostError, TooManyCallsError) as error:
            if self._file is None and isinstance(error, TooManyCallsError):
                self._pack()
                return False
            if self._file and not may_refer_to(self._engine, self._run.run_id, self._file.name):
                self._discard(self._file)
            raise
        return True

    def tidy_up(self) -> None:
        """Delete a file whose attempt was over before the run could refer to it."""
        if self._file and not self._is_sent:
            self._discard(self._file)

    def _pack(self) -> None:
        """Make a file of the result: with the step's temporary files, or with the run's values."""
        run, call, new_id = self._run, self._call, self._engine.clock.new_id()
        file = temporary_files.pack(run, new_id, call.inline or "null")
        if call.keep:
            name = f"{run.current_step}-call-{run.fencing_token}-{new_id}{temporary_files.GZIP}"
            file = file._replace(name=f"{values_folder(run)}/{name}")
        self._file = file
        self._call = call.with_(inline=None, ref=file.name, digest=file.digest)

    def _discard(self, file: PackedFile) -> None:
        temporary_files.discard(self._engine.artifacts, file.name, self._engine.errand)
