"""The result of a handler, as the engine judges it."""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from leasehold.domain.limit import Bound
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.status import BlockCode, Termination
from leasehold.frozen import dataclass

T = TypeVar("T")

OutputStatus = Literal["SUCCESS", "PARTIAL", "ERROR"]
OUTPUT_STATUSES: Final = ("SUCCESS", "PARTIAL", "ERROR")


@dataclass(frozen=True, slots=True)
class StepResult(Generic[T]):
    """An output with more, which a handler may return in place of the bare output.

    Args:
        output: the output: JSON values or a pydantic model, as the next step takes it.
        status: `SUCCESS`; `PARTIAL` where something is missing: the run goes on; or `ERROR`: the
            attempt has failed, with the code `output_error`.
        summary: one line of at most 500 characters for people; that of the last step is announced.
        skip_to: the name of the later step that is given the output; those between are left out.
            The pipeline declares it, `Step(…, skips_to=(…,))`. None: the next step.
    """

    output: T
    status: OutputStatus = "SUCCESS"
    summary: str = ""
    skip_to: str | None = None


class Finished(NamedTuple):
    """The handler returned an output that fits: its JSON text."""

    output: str
    status: str = "SUCCESS"
    summary: str = ""
    skip_to: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The output fits, and a gate does not let it pass."""

    output: str
    status: str
    found: Block
    summary: str = ""
    skip_to: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; a permanent failure is not repeated."""

    error: ErrorRecord
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Unable:
    """The code that is deployed cannot do it, and has to be put right: no attempt failed.

    Args:
        code: what is wrong.
        error: the same, as the run notes it.
        finished: the output that waits to be judged; None: the handler was not called.
    """

    code: BlockCode
    error: ErrorRecord
    finished: Finished | None = None


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """The attempt was ended at a limit, which counts as a failure.

    Args:
        reason: which limit.
        error: the error that the run notes.
        stacks: what the handler was doing then: its threads, frame by frame; empty: not known.
    """

    reason: Termination
    error: ErrorRecord
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt was stopped before it was done.

    Args:
        reason: why.
        detail: the same for people, in a sentence; empty: what goes without saying of the reason.
    """

    reason: Termination
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The attempt met an outage, which is not a failure: what was missing, and the problem."""

    reason: Termination
    detail: str


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """The signal that a handler waits for.

    Args:
        name: of the signal.
        timeout_s: for how long, in seconds; None: for any time.
        otherwise: what then, as an `Otherwise`.
        model: the path of the model that it has to fit; empty: any value will do.
        refused: why the signal that was there does not count; empty: there was none.
    """

    name: str
    timeout_s: float | None = None
    otherwise: str = "block"
    model: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Continued:
    """The attempt ended for the next one to go on from what it kept.

    Args:
        at_checkpoint: it was ended at a checkpoint, because its time was short; else the handler
            asked for it.
        over_budget: it was ended as a budget is used up, which the sentence names; empty: it was
            not.
        wanted: the signal that the next attempt waits for; None: it waits for none.
    """

    at_checkpoint: bool = False
    over_budget: str = ""
    wanted: SignalRequest | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The attempt did not begin: a limit has no room, and its run waits until it is called.

    Args:
        bound: the limit.
        group: of the runs that share its other limits.
    """

    bound: Bound
    group: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """The attempt made the children that its run waits for now.

    Args:
        kind: `each`, `parallel` or `child`.
        items: how many items there are in all; 0: the children have none.
        runs: what they are started with.
    """

    kind: str
    items: int
    runs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The attempt was to gather what children made, and some of it is missing: a person decides.

    Args:
        finding: what is missing, in a sentence.
        code: the same for machines.
    """

    finding: str
    code: str


Result = (
    Finished
    | Refused
    | Unable
    | Failed
    | LimitExceeded
    | Stopped
    | Deferred
    | Continued
    | Waiting
    | Begun
    | Incomplete
)
