"""Notes: what an attempt has to say beside its result, kept with its next write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from leasehold.domain.checkpoint import CallCount, KeptValue, UnconfirmedCall
from leasehold.domain.delivery import MAX_OUTPUT_SUMMARY_CHARS
from leasehold.domain.manifest_parts import Progress, StackRequest, TrialVerdict
from leasehold.domain.printable import one_line
from leasehold.domain.spend import Spend
from leasehold.domain.stored import replace

#: So much of what a handler says of its progress is kept.
_MAX_PROGRESS_CHARS: Final = 200
#: So much of the name of its first tool, likewise.
MAX_TOOL_CHARS: Final = 128


class MadeOutput(NamedTuple):
    """The output of a step that was made, and that no gate has refused so far.

    Args:
        value: the output, or where it lies.
        status: how good it is.
        verdict: what it says of the trial, where it is a reviewer's.
        summary: one line on it for people; None: there is none.
        skip_to: the later step that it is for; None: the next one.
    """

    value: KeptValue
    status: str = "SUCCESS"
    verdict: TrialVerdict | None = None
    summary: str | None = None
    skip_to: str | None = None


class Phases(NamedTuple):
    """How long the two phases of an attempt took, as its worker measured them.

    Args:
        bootstrap_s: from its lease to its first tool call, or else to its handler, in seconds.
        execution_s: from there to its result, or to now.
        is_cold: whether it is the first attempt of its process.
        first_tool: what its handler called first; empty: it did not say.
    """

    bootstrap_s: float
    execution_s: float
    is_cold: bool
    first_tool: str = ""


class ThreadStack(NamedTuple):
    """The calls of a thread.

    Args:
        text: frame by frame, the most recent last, secrets cut out; empty: none of the user's.
        origin: the deepest call in the user's code as `file:line (function)`.
    """

    text: str = ""
    origin: str | None = None


#: Returns what a thread does in the code of a path, `module:function`.
StackOf = Callable[[int, str], ThreadStack]


def no_stack(_thread: int, _path: str) -> ThreadStack:
    """Return nothing."""
    return ThreadStack()


class TakenStack(NamedTuple):
    """The answer to a request for the stack of an attempt.

    Args:
        request: the request.
        detail: where the attempt is, or why there is no stack, in a sentence.
        stacks: its calls, frame by frame, without values of variables; empty: there are none.
    """

    request: StackRequest
    detail: str
    stacks: str = ""


class Notes(NamedTuple):
    """The values to keep with the next write of an attempt.

    Args:
        progress: what the handler last said; None: nothing.
        calls: how many calls the step has made once so far, and how many that has spared, over all
            attempts; None: as the run has it. A total, so that to write it twice does no harm.
        recorded_calls: of how many calls of the trial the results lie beside the run; likewise.
        unconfirmed_call: a call that a person is to be asked about; None: there is none.
        leaves_file: whether a temporary file may be there that the run does not refer to yet.
        output: what waits to be judged by the gates; None: there is none, or there are no gates.
        stores_files: whether files of the run may be there since the attempt began.
        phases: how long it has taken so far; None: not known, or its handler was not called.
        stack: what it did when it was last asked; None: it was not asked.
        spared: what recorded results have spared the step so far, likewise.
        spent: what the attempt has spent so far beside its recorded calls: all of it, so that to
            write it twice does no harm. None: nothing that is known here.
        recorded_spend: what the recorded calls of the trial have spent, those of all attempts;
            likewise.
        waited: the names of the signals that its handler was given.
    """

    progress: Progress | None = None
    calls: CallCount | None = None
    recorded_calls: int = 0
    unconfirmed_call: UnconfirmedCall | None = None
    leaves_file: bool = False
    output: MadeOutput | None = None
    stores_files: bool = False
    phases: Phases | None = None
    stack: TakenStack | None = None
    spared: Spend | None = None
    spent: Spend | None = None
    recorded_spend: Spend | None = None
    waited: tuple[str, ...] = ()


NO_NOTES: Final = Notes()


def progress_without_secrets(progress: Progress) -> Progress:
    """Return what a handler says of its progress as it is kept: its message without secrets."""
    if not progress.message:
        return progress
    return replace(progress, message=said(progress.message))


def summary_of_output(text: str) -> str | None:
    """Return what people are to read of an output as it is kept: one line, without secrets."""
    return one_line(said(text), MAX_OUTPUT_SUMMARY_CHARS) or None


def progress_message(text: str) -> str:
    """Return so much of what a handler says of its progress; it is cut behind no half a secret."""
    return text if len(text) <= _MAX_PROGRESS_CHARS else said(text)[:_MAX_PROGRESS_CHARS]


def tool_name(text: str) -> str:
    """Return the name of a tool as it is kept: one line, without secrets."""
    return said(one_line(text, MAX_TOOL_CHARS))


def said(text: str) -> str:
    """Return a text of a handler as it is kept: without secrets."""
    if not text:
        return ""
    from leasehold.domain.redaction import without_secrets  # noqa: PLC0415 - when there is a text

    return without_secrets(text)
