"""Notes: what an attempt has to say beside its result, kept with its next write."""

from __future__ import annotations

from typing import Final, NamedTuple

from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.stored import replace
from leasehold.domain.trial_record import TrialVerdict

#: So much of what a handler says of its progress is kept.
_MAX_MESSAGE: Final = 200


class MadeOutput(NamedTuple):
    """The output of a step that was made, and that no gate has refused so far.

    Args:
        value: the output, or where it lies.
        status: how good it is.
        verdict: what it says of the trial, where it is a reviewer's.
    """

    value: KeptValue
    status: str = "SUCCESS"
    verdict: TrialVerdict | None = None


class Notes(NamedTuple):
    """What is to be kept with the next write of an attempt.

    Args:
        progress: what the handler last said; None: nothing.
        calls_spared: how many calls of the step its records have spared so far, over all attempts;
            None: as the run has it. A total, so that to write it twice does no harm.
        leaves_file: whether a temporary file may be there that the run does not refer to yet.
        output: what waits to be judged by the gates; None: there is none, or there are no gates.
        stores_files: whether files of the run may be there since the attempt began.
    """

    progress: Progress | None = None
    calls_spared: int | None = None
    leaves_file: bool = False
    output: MadeOutput | None = None
    stores_files: bool = False


NO_NOTES: Final = Notes()


def progress_without_secrets(progress: Progress) -> Progress:
    """Return what a handler says of its progress as it is kept: its message without secrets."""
    if not progress.message:
        return progress
    return replace(progress, message=said(progress.message))


def progress_message(text: str) -> str:
    """Return so much of what a handler says of its progress; it is cut behind no half a secret."""
    return text if len(text) <= _MAX_MESSAGE else said(text)[:_MAX_MESSAGE]


def said(text: str) -> str:
    """Return what someone says as it is kept: without secrets."""
    if not text:
        return ""
    from leasehold.domain.redaction import without_secrets  # noqa: PLC0415 - when there is a text

    return without_secrets(text)
