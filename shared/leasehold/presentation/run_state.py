"""Where a run stands and how it ended, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Final

from leasehold.domain.checkpoint import KeptCounts, KeptValue
from leasehold.domain.manifest import MAX_RUN_ID_CHARS, Manifest
from leasehold.domain.manifest_parts import Attempts, Lease, StepRecord
from leasehold.domain.printable import counted, one_line
from leasehold.domain.status import AttemptEnd, RunStatus
from leasehold.domain.summary import Summary
from leasehold.domain.trials import trial_words
from leasehold.frozen import dataclass
from leasehold.presentation.formatting import StyledText, ago, duration
from leasehold.registry.registry import Registry

# What can lie over a run's status and say why the run does not move; one at a time.


@dataclass(frozen=True, slots=True)
class OverlayEntry:
    """An overlay.

    Args:
        key: the field of a manifest, and of its summary, that is true while the overlay holds.
        label: the word behind the status.
        icon: one character, for screens.
        colour: of the run while the overlay holds: red, yellow, blue or grey.
        tooltip: what it means, in whole sentences.
        hides_status: whether a screen shows icon and label in place of the status.
    """

    key: str
    label: str
    icon: str
    colour: str
    tooltip: str
    hides_status: bool = False


OVERLAYS: Final = Registry(
    "overlays",
    [
        OverlayEntry(
            "paused",
            "paused",
            "‖",
            "yellow",
            "A person holds the run. An attempt that runs may end; nothing more is dispatched.",
        ),
        OverlayEntry(
            "held",
            "step paused",
            "◫",
            "blue",
            "A person paused the step, or all steps. The run goes on once that is resumed.",
        ),
        OverlayEntry(
            "cancelled",
            "cancelled",
            "⊘",
            "grey",
            "A person ended the run. It never moves again.",
        ),
        OverlayEntry(
            "dead_lettered",
            "dead-lettered",
            "💀",
            "red",
            "The engine gave the run up, and says why. It never moves again.",
            hides_status=True,
        ),
    ],
)


DEAD_LETTER_ICON: Final = OVERLAYS["dead_lettered"].icon

#: Icon and colour of a status that no overlay lies over.
_STATUSES: Final[Mapping[RunStatus, tuple[str, str]]] = {
    RunStatus.PENDING: ("·", "cyan"),
    RunStatus.IN_PROGRESS: ("·", "blue"),
    RunStatus.ERROR: ("✗", "red"),
    RunStatus.BLOCKED: ("■", "yellow"),
    RunStatus.COMPLETED: ("✓", "green"),
}


def status_icon(status: RunStatus) -> str:
    """Return one character for a status."""
    return _STATUSES[status][0]


def status_style(status: RunStatus) -> str:
    """Return the style of a status."""
    return _STATUSES[status][1]


def overlay_of(run: Manifest | Summary) -> OverlayEntry | None:
    """Return what lies over the status of the run; None: nothing."""
    return next((overlay for overlay in OVERLAYS if getattr(run, overlay.key)), None)


def state_of(run: Manifest | Summary) -> StyledText:
    """Return the status of a run with what lies over it."""
    overlay = overlay_of(run)
    if overlay is None:
        return StyledText(run.status.value, status_style(run.status))
    short_form = f"{overlay.icon} {overlay.label}" if overlay.hides_status else None
    return StyledText(f"{run.status} {overlay.label}", _style(overlay), short_form)


def state_line(run: Manifest | Summary) -> StyledText:
    """Return which run it is, and its state."""
    state = state_of(run)
    return StyledText(f"run {run.run_id} {state.text}", state.style)


def kept_line(kept: KeptCounts, *, many: bool = False) -> str:
    """Return what a run, or `many` together, keeps of the work that was done, as a sentence."""
    counts = (
        (kept.steps, "output", "outputs"),
        (kept.checkpoint, "iteration", "iterations"),
        (kept.calls, "recorded result", "recorded results"),
        (kept.trials, "trial", "trials"),
        (kept.unjudged, "output to be judged", "outputs to be judged"),
    )
    words = [counted(count, one, more) for count, one, more in counts if count]
    *first, last = words or ["nothing of the earlier work"]
    what = f"{', '.join(first)} and {last}" if first else last
    return f"They keep {what}." if many else f"It keeps {what}."


def state_and_reason(run: Summary) -> StyledText:
    """Return the state of a run, and the code of the reason why it does not move."""
    state = state_of(run)
    if run.dead_letter_reason is not None:
        reason = run.dead_letter_reason.value
        short_form = f"{DEAD_LETTER_ICON} {reason}"
        return state._replace(text=f"{state.text} {reason}", short_form=short_form)
    if run.held is not None:
        return state._replace(text=one_line(f"{state.text} {run.held.brief}", _MAX_STATE_CHARS))
    if run.waits_in is not None:
        words = f"{state.text} waits for limit {run.waits_in}"
        return state._replace(text=one_line(words, _MAX_STATE_CHARS))
    code = run.block_code
    if code is None and run.status is RunStatus.ERROR:
        code = run.error_code
    return state if code is None else state._replace(text=f"{state.text} {code}")


def result_of(run: Manifest) -> StyledText:
    """Return how a run ended, or what it waits on: `run ID STATE after TIME`, and why."""
    state = state_of(run)
    passed = duration((run.completed_at or run.updated_at) - run.created_at)
    if run.status is RunStatus.COMPLETED:
        cost = f", {run.cost_words}" if run.cost_words else ""
        return StyledText(f"run {run.run_id} {state.text} in {passed}{cost}", state.style)
    words = state.text
    if run.dead_letter_reason is not None:
        words = f"{state.on_screen}, {run.dead_letter_reason}"
    line = f"run {run.run_id} {words} after {passed} at step {run.position.step}"
    why = _why(run)
    return StyledText(one_line(f"{line}: {why}" if why else line), state.style)


def value_in_short(kept: KeptValue | None, limit: int = 72) -> str:
    """Return a user's value, abbreviated; a large one by the name of its artifact."""
    if kept is None:
        return ""
    return f"artifact {kept.ref}" if kept.ref else one_line(kept.text or "null", limit)


def grade_of(record: StepRecord) -> str:
    """Return the status of an output that is not whole: PARTIAL; nothing of any other."""
    status = record.output_status
    return "" if status in (None, "SUCCESS") else str(status)


def _style(overlay: OverlayEntry) -> str:
    """Return a style that stands out from a status of the same colour."""
    return "dim" if overlay.colour == "grey" else f"bold {overlay.colour}"


def _why(run: Manifest) -> str | None:
    if run.block is not None:
        return f"{run.block.code}: {run.block.words}"
    if run.held is not None:
        return run.held.words
    if run.awaited_limit:
        return f"it waits for {run.awaited_limit}"
    return run.dead_letter_detail


# A run that moves in one line of a table: where it stands, how far it is, when it was heard of.


_MAX_STATE_CHARS: Final = 80
_MAX_NAME_CHARS: Final = 40
_MAX_MESSAGE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RunLine:
    """What a line shows; `fraction` is that of the current step, None where it said nothing."""

    run_id: str
    pipeline: str
    state: StyledText
    step: str
    attempt: str
    fraction: float | None
    message: str
    heartbeat: str
    spent: str = ""

    @property
    def words(self) -> str:
        """The line for a log; without the age of the heartbeat, which is no news."""
        run = f"run {self.run_id} {self.pipeline} {self.state.text}"
        where = f"{run} step {self.step} attempt {self.attempt}"
        return one_line(f"{where}: {self.reported}" if self.reported else where)

    @property
    def reported(self) -> str:
        """How far the step is, in words."""
        share = "" if self.fraction is None else f"{self.fraction:.0%}"
        return ", ".join(filter(None, (share, self.message, self.spent)))


def run_line(run: Summary, now: datetime) -> RunLine:
    """Return the line of a run."""
    return RunLine(
        run_id=one_line(run.run_id, MAX_RUN_ID_CHARS),
        pipeline=one_line(run.pipeline, _MAX_NAME_CHARS),
        state=state_and_reason(run),
        step=one_line(run.current_step, _MAX_NAME_CHARS),
        attempt=str(run.attempts.ended + 1),
        fraction=_step_fraction(run),
        message=one_line(run.progress.message, _MAX_MESSAGE_CHARS),
        heartbeat="" if run.heartbeat_at is None else ago(min(run.heartbeat_at, now), now),
        spent="" if run.spend is None else run.spend.words,
    )


def _step_fraction(run: Summary) -> float | None:
    """Return how far the current step says it is: the part of the run's share that is its own."""
    progress = run.progress
    try:
        share = progress.fraction * progress.steps - progress.steps_done
    except OverflowError:  # a server may say anything
        return None
    if run.heartbeat_at is None or not (progress.message or share):
        return None
    return min(1.0, max(0.0, share)) if isfinite(share) else 0.0


# One step of a run in one line: icon, time, progress, and what there is to say.


_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_A_SECOND: Final = 10
SKIPPED_ICON: Final = "↷"
SKIPPED: Final = "SKIPPED"
_MAX_ERROR_CHARS: Final = 200
_MAX_WORD_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class StepLine:
    """What a line shows; `fraction` is None where the handler reported none."""

    icon: str
    style: str
    step: str
    began: bool
    elapsed: str
    fraction: float | None
    words: str = ""
    error: str | None = None


def step_line(run: Manifest, step: str, now: datetime, *, worker: str | None) -> StepLine:
    """Return the line of a step.

    Args:
        run: the run.
        step: a step of its plan.
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
    """
    record = run.steps[step]
    if by := run.skipped_by(step):
        words = f"skipped by step {by}"
        return StepLine(
            SKIPPED_ICON, "dim", step, began=False, elapsed="", fraction=None, words=words
        )
    is_current = step == run.position.step and run.status is not RunStatus.COMPLETED
    is_running = is_current and (run.position.lease is not None or run.is_resting)
    return StepLine(
        icon=_current_icon(run, now) if is_current else status_icon(record.status),
        style=status_style(record.status),
        step=step,
        began=record.started_at is not None or is_current,
        elapsed=_elapsed(run, record, now),
        fraction=_share(record.progress.fraction) if is_running and record.progress else None,
        words=_words(run, now, worker) if is_current else _ended_words(record),
        error=_error(run) if is_current else None,
    )


def _share(fraction: float) -> float:
    """Return a share of 1 that can be drawn, whatever a handler or a server reported."""
    return min(1.0, max(0.0, fraction)) if isfinite(fraction) else 0.0


def _current_icon(run: Manifest, now: datetime) -> str:
    if run.position.lease is not None:
        return _SPINNER[int(now.timestamp() * _TURNS_A_SECOND) % len(_SPINNER)]
    overlay = overlay_of(run)
    return status_icon(run.steps[run.position.step].status) if overlay is None else overlay.icon


def _elapsed(run: Manifest, record: StepRecord, now: datetime) -> str:
    if record.started_at is None:
        return ""
    until = now if run.is_moving else run.updated_at
    return duration((record.completed_at or until) - record.started_at)


def _words(run: Manifest, now: datetime, worker: str | None) -> str:
    """Return what there is to say of the current step."""
    if run.position.lease is not None:
        return _attempt_words(run, run.position.lease, now, worker)
    if run.is_terminal or run.paused:
        return ""
    if run.is_resting:
        return reported(run)
    if wanted := run.awaited_limit:
        return f"waits for {wanted}"
    due, trial = run.position.dispatch.not_before, trial_words(run)
    waits = run.status is RunStatus.PENDING and worker is None
    words = "waits for a worker" if waits else ""
    if due > now:
        words = f"attempt {run.position.attempt} in {duration(due - now)}"
    return "  ".join(filter(None, (trial, words)))


def _ended_words(record: StepRecord) -> str:
    """Return what there is to say of a step that is not the current one."""
    spent = "" if record.spend is None else record.spend.words
    return "  ".join(filter(None, (grade_of(record), spent, ended_attempts(record.attempts))))


def _attempt_words(run: Manifest, lease: Lease, now: datetime, worker: str | None) -> str:
    """Return what the handler reported, and who else works on the run."""
    left = duration(lease.expires_at - now)
    words = (
        reported(run),
        trial_words(run),
        attempt_words(run) if run.position.attempt > 1 else "",
        "" if lease.holder == worker else f"held by {lease.holder}, renewed or over in {left}",
    )
    return "  ".join(filter(None, words))


def reported(run: Manifest) -> str:
    """Return what the handler of the current step last said, and its last checkpoint."""
    record, kept = run.steps[run.position.step], run.position.checkpoint
    progress, spend = record.progress, record.spend
    phase = f" of {one_line(kept.phase, _MAX_WORD_CHARS)}" if kept and kept.phase else ""
    words = (
        f"{_share(progress.fraction):.0%}" if progress else "",
        one_line(progress.message, _MAX_WORD_CHARS) if progress else "",
        f"checkpoint {kept.iteration_count}{phase}" if kept else "",
        "" if spend is None else spend.words,
    )
    return ", ".join(filter(None, words))


def attempt_words(run: Manifest) -> str:
    """Return which attempt of the current step it is, and how those before it ended."""
    before = ended_attempts(run.position.attempts)
    return (
        f"attempt {run.position.attempt} ({before})"
        if before
        else f"attempt {run.position.attempt}"
    )


def ended_attempts(attempts: Attempts) -> str:
    """Return how attempts ended that gave no output: `2 failed, 1 continued`."""
    counts = ((getattr(attempts, end.value), end.value) for end in AttemptEnd)
    return ", ".join(f"{count} {cause}" for count, cause in counts if count)


def _error(run: Manifest) -> str | None:
    """Return the error or the finding that the run waits on."""
    if run.block is not None:
        return one_line(f"{run.block.code}: {run.block.finding}", _MAX_ERROR_CHARS)
    if run.status is not RunStatus.ERROR or run.error is None:
        return None
    return one_line(f"{run.error.type}: {run.error.message}", _MAX_ERROR_CHARS)
