"""What an attempt has to say beside its result, gathered until its next write keeps it."""

from __future__ import annotations

import threading

from leasehold.domain.kept_work import CallCount
from leasehold.domain.manifest_parts import Progress, StepRecord
from leasehold.domain.notes import MadeOutput, Notes


class AttemptNotes:
    """The notes of an attempt, for any of its threads.

    Args:
        record: the step as the attempt found it.

    Attributes:
        progress: what the handler last said; None: nothing.
        output: what the gates judge now; None: nothing, or there are none.
    """

    def __init__(self, record: StepRecord) -> None:
        self.progress: Progress | None = None
        self.output: MadeOutput | None = None
        self._spared_before = (record.calls or CallCount()).spared
        self._spared = 0
        self._leaves_file = False
        self._stores_files = False
        self._counting = threading.Lock()

    @property
    def value(self) -> Notes:
        """What is to be kept with the next write."""
        spared = self._spared_before + self._spared if self._spared else None
        return Notes(self.progress, spared, self._leaves_file, self.output, self._stores_files)

    def count_spared_call(self) -> None:
        """Count a call that its recorded result has spared."""
        with self._counting:
            self._spared += 1

    def note_file(self) -> None:
        """Note that a temporary file may be there from now on, of which nobody knows."""
        self._leaves_file = True

    def note_stored_file(self) -> None:
        """Note that a file of the run may be there from now on."""
        self._stores_files = True

    def is_news(self, record: StepRecord) -> bool:
        """Return whether there is something that is not stored yet: progress, or an output."""
        is_made = self.output is not None and self.output.value != record.kept_output
        return is_made or self.progress not in (None, record.progress)
