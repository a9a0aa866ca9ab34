"""Recorded calls (`ctx.once`): where their results lie, which of them count, for which request.

Each result is a document beside its run, `runs/{id}/calls/…`, whose name follows from what it is
of: the life of the run, the step, the trial and the key. The first worker that writes it decides;
its value never changes, so a worker that lost its lease and its successor agree. Nothing is written
to the run for it. Versions before this one kept results in the run, where they still count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import ValidationError

from leasehold.domain.artifact_name import folder_of_life
from leasehold.domain.checkpoint import CallResult, CallSource
from leasehold.domain.json_text import canonical
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.spend import NOTHING, Spend
from leasehold.domain.status import BlockCode
from leasehold.domain.stored import Document, Ref, UnreadableDocument
from leasehold.errors import MAX_VALUE_SHOWN_CHARS, InvalidRequestError

#: A step keeps so many results.
MAX_RESULTS_PER_STEP: Final = 10_000
#: So many attempts of the same code may pay for a call again, each for another request.
MAX_PAID_AGAIN: Final = 3
#: Characters of a key, and of the name of a type.
MAX_CALL_KEY_CHARS: Final = 128
MAX_TYPE_CHARS: Final = 100
#: So many fields of a request have a fingerprint each; those behind them share one.
MAX_REQUEST_FIELDS: Final = 16
MAX_FIELD_CHARS: Final = 64

#: What the result of a call depends on: a digest of each field of it.
Request: TypeAlias = Mapping[str, str]

_KEPT: Final = "keep"
_REST: Final = "…"


def check_call_key(key: object) -> None:
    """Refuse what cannot name a call, with InvalidRequestError."""
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_CALL_KEY_CHARS or not key.isprintable():
        allowed = f"a text of 1 to {MAX_CALL_KEY_CHARS} printable characters"
        value = key[:MAX_VALUE_SHOWN_CHARS] if isinstance(key, str) else type(key).__name__
        raise InvalidRequestError(field="key", value=value, allowed=allowed)


class Intent(NamedTuple):
    """How a call is to be noted before it is made.

    Args:
        on_unknown: what becomes of it where an attempt ends before its result is recorded: `ask`
            a person whether it happened, or `fail`.
        arguments: what it is called with, for that person.
        keep: whether its result is to outlast the step.
    """

    on_unknown: Literal["ask", "fail"]
    arguments: str
    keep: bool = False


class MadeCall(NamedTuple):
    """A call that was made, and is to be recorded.

    Args:
        key: what names it.
        type: what it returns, by name; empty: not known.
        result: what it returned, JSON text.
        keep: whether the result outlasts its step.
        request: what the result depends on, as `fingerprint_of` returns it; None: not known.
        spend: what the call has spent.
        took_s: how many seconds it took; None: not known.
    """

    key: str
    type: str
    result: str
    keep: bool = False
    request: Request | None = None
    spend: Spend = NOTHING
    took_s: float | None = None


#: So much of the arguments of a call is kept.
MAX_ARGUMENTS_CHARS: Final = 2000


# The request of a call: what its result depends on.


def fingerprint_of(request: Any) -> dict[str, str]:
    """Return a digest of each field of a request: what it is, without what it says.

    Args:
        request: JSON values. The fields of an object are told apart, so that a difference has a
            name; anything else is one field.

    Raises:
        ValueError, TypeError: it is not JSON.
    """
    if not isinstance(request, Mapping):
        request = {"request": request}
    fields = sorted(((_field(str(name)), value) for name, value in request.items()), key=_first)
    told, rest = dict(fields[:MAX_REQUEST_FIELDS]), fields[MAX_REQUEST_FIELDS:]
    if rest:
        told[_REST] = rest
    return {name: _digest(canonical(value)) for name, value in told.items()}


def _field(name: str) -> str:
    """Return the name of a field as it is kept: no other field of its request has it."""
    if len(name) <= MAX_FIELD_CHARS and name != _REST:
        return name
    return f"{name[: MAX_FIELD_CHARS - 13]}#{_digest(name)}"


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def is_for(call: CallResult, request: Request | None) -> bool:
    """Return whether a result counts for a request; where either is not known, it does."""
    return request is None or call.request is None or dict(call.request) == dict(request)


def difference(call: CallResult, request: Request) -> str:
    """Return the first field in which the request of a recorded call is another one."""
    before = call.request or {}
    names = sorted({*before, *request})
    return next((name for name in names if before.get(name) != request.get(name)), "")


def attempts_again(before: Iterable[CallResult], run: Manifest, code: str) -> int:
    """Return how many attempts of this code have paid again for a call, each for another request.

    Other code counts anew: a changed prompt is asked again. So does a person who has the run look
    again, for one attempt.
    """
    if resumed_by_person(run):
        return 0
    attempts = {one.attempt for one in before if one.again == code}
    return len(attempts - {run.position.attempt})


def resumed_by_person(run: Manifest) -> bool:
    """Return whether a person has the run look again after a mistake of its handler."""
    block = run.position.dispatch.after_block
    return block is not None and block.code == BlockCode.HANDLER_MISTAKE


def recorded_call(document: Document) -> CallResult | None:
    """Return the recorded call that a document is; None: a person has edited it, and it is none."""
    if isinstance(document, UnreadableDocument):
        return None
    try:
        call: CallResult = CallResult.model_validate(document)
    except ValidationError:
        return None
    return call


# Where results lie.


def calls_of(run_id: str) -> str:
    """Return the collection of a run's recorded calls."""
    return f"{run_ref(run_id)}/calls"


def run_of(ref: Ref) -> str:
    """Return the run that a document of a recorded call is of."""
    return ref.collection.split("/")[1]


def call_ref(run: Manifest, call: CallResult) -> Ref:
    """Return the name of a recorded call of the current step: the same in each attempt."""
    place = _KEPT if call.keep else f"t{call.trial}"
    request = "" if call.request is None else canonical(dict(call.request))
    mark = hashlib.sha256(f"{call.key}\0{request}".encode()).hexdigest()[:32]
    behind = f"{place}-{_times_anew(run, call.step)}-{mark}"
    return Ref(calls_of(run.run_id), f"{_of_step(run.life, call.step)}{behind}")


class Place(NamedTuple):
    """Where recorded calls of the current step lie.

    Args:
        collection: of the run that they were recorded in.
        prefix: what their names begin with.
        trial: whose results count, beside those that outlast their trial; None: those alone.
        anew: how often the step had been begun anew by then.
        is_own: whether the run recorded them itself.
    """

    collection: str
    prefix: str
    trial: int | None
    anew: int
    is_own: bool = False

    def has(self, name: str) -> bool:
        """Return whether the recorded call of this name counts."""
        place, anew, *_ = name.removeprefix(self.prefix).split("-")
        return place in (_KEPT, f"t{self.trial}") and anew == str(self.anew)


def places_of(run: Manifest) -> list[Place]:
    """Return where recorded calls lie that count for the current step: the run's own come last."""
    at = run.position
    anew, found = _times_anew(run, at.step), []
    for source in run.call_sources or ():
        if run.plan.index(at.step) > run.plan.index(source.step):
            continue  # it was never there
        is_same = (source.step, source.as_trial) == (at.step, at.trial)
        prefix = _of_step(source.life, at.step)
        trial = source.trial if is_same else None
        found.append(Place(calls_of(source.run_id), prefix, trial, anew))
    own = Place(calls_of(run.run_id), _of_step(run.life, at.step), at.trial, anew, is_own=True)
    return [*found, own]


def may_have_results(run: Manifest) -> bool:
    """Return whether calls may be recorded that count now; a first attempt has none."""
    at, lease = run.position, run.position.lease
    is_first = lease is not None and at.step_started_at == lease.acquired_at and at.trial == 1
    return not is_first or bool(run.call_sources or at.recorded_calls)


def may_have_left_calls(run: Manifest) -> bool:
    """Return whether calls of an ended run may be recorded, known to it or not.

    A worker that was cut short may have had no time to say so.
    """
    records = run.steps.values()
    is_cut_short = run.cancelled or run.dead_lettered
    return is_cut_short or any(one.calls is not None or one.attempts.ended for one in records)


def source_of(run: Manifest, as_trial: int) -> CallSource:
    """Return where a run finds the recorded calls that it goes on from in another one."""
    at = run.position
    return CallSource(
        run_id=run.run_id,
        life=run.life,
        step=at.step,
        trial=at.trial,
        as_trial=as_trial,
        recorded=at.recorded_calls,
    )


def prefix_of_life(life: str) -> str:
    """Return what the names of all recorded calls of one life of a run begin with."""
    return f"{life}-"


def is_temporary_call(name: str) -> bool:
    """Return whether the recorded call of this name goes with its step."""
    _life, _step, place, *_ = name.split("-")
    return place != _KEPT


def calls_folder(run: Manifest, step: str, trial: int) -> str:
    """Return the name under which a run owes the deletion of a trial's recorded calls."""
    return f"{folder_of_life(run)}/calls/{step}-{trial}"


def owed_prefix(run: Manifest, folder: str) -> str | None:
    """Return what the names of the recorded calls begin with that are owed so; None: of none."""
    within = f"{folder_of_life(run)}/calls/"
    step, _, trial = folder.removeprefix(within).rpartition("-")
    return f"{_of_step(run.life, step)}t{trial}-" if folder.startswith(within) and step else None


def _of_step(life: str, step: str) -> str:
    return f"{prefix_of_life(life)}{_digest(step)}-"


def _times_anew(run: Manifest, step: str) -> int:
    return run.steps[step].anew or 0


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Results that a version before this one kept in the run.


def outlasting(calls: tuple[CallResult, ...]) -> tuple[CallResult, ...]:
    """Return the results that are left when the current step is over."""
    return tuple([call for call in calls if call.keep])


def current_calls(manifest: Manifest) -> tuple[CallResult, ...]:
    """Return the results that count now: of this step and trial, and what an earlier one kept."""
    return tuple(
        call
        for call in manifest.position.calls
        if call.step == manifest.position.step
        and (call.keep or call.trial == manifest.position.trial)
    )


def kept_files(manifest: Manifest) -> tuple[str, ...]:
    """Return the artifacts of the checkpoint, and of results and signals that are in the run."""
    checkpoint = manifest.position.checkpoint
    values = [] if checkpoint is None else [checkpoint.partial_results]
    values += [call.value for call in manifest.position.calls]
    values += [signal.value for signal in manifest.signals or ()]
    return tuple(value.ref for value in values if value.ref is not None)
