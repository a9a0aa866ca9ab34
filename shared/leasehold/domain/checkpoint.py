"""The work of a step that later attempts reuse: its checkpoint and recorded results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import AwareDatetime

from leasehold.domain.spend import Spend
from leasehold.domain.stored import Stored

#: What the name of a packed artifact ends with.
PACKED: Final = ".gz"


class PhaseReached(Stored):
    """The most iterations of a phase that were ever kept."""

    phase: str
    iteration_count: int


class Checkpoint(Stored):
    """What an attempt can go on from: partial results as JSON text, or the artifact's name.

    `furthest` says how far the step ever was: what goes back and comes again is no progress.
    `reached` says how far this attempt was in the phases that it had before.
    `digest` is that of the text behind `ref`: an artifact of another text is not the step's.
    Where it is known, the artifact is called `ref` with `.gz` after it. A version before this one
    cannot read that: it finds nothing under `ref`, and begins at the beginning.
    """

    step: str
    trial: int
    phase: str = ""
    iteration_count: int
    inline: str | None = None
    ref: str | None = None
    digest: str | None = None  # None: it is inline, or a version before this one kept it
    saved_at: AwareDatetime
    fencing_token: int
    furthest: tuple[PhaseReached, ...] = ()
    reached: tuple[PhaseReached, ...] | None = None  # None: none

    @property
    def partial_results(self) -> KeptValue:
        """The partial results."""
        is_packed = self.ref is not None and self.digest is not None
        ref = f"{self.ref}{PACKED}" if is_packed else self.ref
        return KeptValue(text=self.inline, ref=ref, digest=self.digest)


class CallResult(Stored):
    """The result of a call that a handler had made once (`ctx.once`): its type, and the value.

    An empty `type` is not known, and any type goes with it. `keep`: it outlasts its step.
    `request` has a digest of each field of what the result depends on; None: that is not known.
    """

    step: str
    trial: int
    key: str
    type: str
    inline: str | None = None
    ref: str | None = None
    digest: str | None = None  # of the text behind `ref`
    keep: bool | None = None  # None: no
    request: Mapping[str, str] | None = None
    at: AwareDatetime | None = None  # when it was recorded; None: by a version before this one
    attempt: int | None = None  # that made the call
    took_s: float | None = None
    bytes: int | None = None  # of the text behind `ref`
    spend: Spend | None = None  # of the call; None: nothing
    again: str | None = None  # the code that paid again, for another request; None: a first result
    is_open: bool | None = None  # True: it is to be made, and has no result so far
    arguments: str | None = None  # what it was called with, for the person who is asked about it

    @property
    def value(self) -> KeptValue:
        """The result."""
        return KeptValue(text=self.inline, ref=self.ref, digest=self.digest)

    @property
    def text_bytes(self) -> int | None:
        """The bytes of its text; None: they are not known, or it has none."""
        return self.bytes if self.inline is None else len(self.inline.encode())

    @property
    def size(self) -> int:
        """The bytes that it takes in a manifest, in JSON."""
        return len(self.model_dump_json(exclude_none=True).encode())


#: The code of a block that waits for what a person says of a call.
CALL_UNCONFIRMED: Final = "call_unconfirmed"


class UnconfirmedCall(Stored):
    """A call that a person is asked about: its attempt ended between the call and its record."""

    name: str  # of its document
    run_id: str | None = None  # that it was made for; None: for the run that waits
    key: str
    attempt: int
    at: AwareDatetime
    arguments: str


class CallSource(Stored):
    """A run whose recorded calls another one goes on from, and where it stood then."""

    run_id: str
    life: str
    step: str
    trial: int
    as_trial: int  # the number of that trial in the run that goes on
    recorded: int = 0  # how many calls it had recorded, as far as it was noted


class CallCount(Stored):
    """How many calls a step made once, and how many later ones their results spared.

    `diverged` counts those that were made again because their request was another one.
    """

    made: int = 0
    spared: int = 0
    diverged: int | None = None  # None: none


class KeptCounts(Stored):
    """The work of earlier attempts that later ones keep after a person's decision."""

    steps: int = 0  # whose outputs are kept
    checkpoint: int = 0  # iterations
    calls: int = 0  # results of `ctx.once`
    trials: int = 0  # that are over
    unjudged: int = 0  # outputs of the step itself: its gates are asked alone

    def plus(self, other: KeptCounts) -> KeptCounts:
        """Return the sum of both."""
        return KeptCounts(
            steps=self.steps + other.steps,
            checkpoint=self.checkpoint + other.checkpoint,
            calls=self.calls + other.calls,
            trials=self.trials + other.trials,
            unjudged=self.unjudged + other.unjudged,
        )


# A value of a user as a manifest has it: its text, or where that lies.


class KeptValue(NamedTuple):
    """A user's value: its JSON text, or the name of the artifact that holds the text.

    `digest` is that of the text behind `ref`, where it is known: any other text is refused.
    """

    text: str | None = None
    ref: str | None = None
    digest: str | None = None
