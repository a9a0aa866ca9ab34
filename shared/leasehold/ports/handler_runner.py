"""The ports that call code of users: a runner for the handler of a step, one for its gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.result import Finished, Result
from leasehold.frozen import dataclass

Attempt_contra = TypeVar("Attempt_contra", contravariant=True)


class StepHandler(Protocol):
    """A handler, as far as a runner needs to know it."""

    @property
    def step_type(self) -> str:
        """Its name."""
        ...

    @property
    def handler(self) -> str:
        """The path of its handler: `module:function`."""
        ...


class EnteredStep(StepHandler, Protocol):
    """A step type whose handler is run."""

    @property
    def entry_actions(self) -> Sequence[str]:
        """The paths of the functions that are called before its handler: `module:function`."""
        ...

    @property
    def reuse(self) -> int:
        """How many attempts a process of it may serve, one after the other."""
        ...


class HandlerRunner(Protocol[Attempt_contra]):
    """Runs the handlers of one kind of isolation."""

    def run(self, attempt: Attempt_contra, step: EnteredStep, given: str) -> Result:
        """Call the entry actions and the handler of a step, and judge what they do; never raises.

        Args:
            attempt: the attempt, under its lease.
            step: the step.
            given: what they are given, JSON text.
        """
        ...


class GateRunner(Protocol):
    """Runs gates, checks that an output must pass, and what summarises one that did."""

    def run(self, gate: StepHandler, manifest: Manifest, finished: Finished) -> Result:
        """Return the result as it is, or what it comes to where the gate refuses it or fails.

        Raises:
            StoreUnavailableError: the gate met an outage; ask again.
        """
        ...

    def summarize(self, function: StepHandler, manifest: Manifest, finished: Finished) -> str:
        """Return what a function says of the output of a run; empty: it cannot within its time."""
        ...


# The handler checks port: what is wrong with a handler or a value, before anything is run.


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a value does not fit a model, without secrets.

    Args:
        model: its name.
        problem: the first issue in words, and how many more there are.
        issues: the first 50, each `{loc, type, message}`.
        count: of all of them.
    """

    model: str
    problem: str
    issues: tuple[Mapping[str, Any], ...]
    count: int


class StepOutput(StepHandler, Protocol):
    """A step type whose output is checked."""

    @property
    def output(self) -> str:
        """The path of the model of a remote step's output, `module:Model`; or nothing."""
        ...


#: What a place gives: what its step does, a list of that, the outcomes of a list (of values, or of
#: batches), or an object of what several steps give.
PlaceShape = Literal["value", "list", "outcomes", "batch_outcomes", "object"]


class BrokenLink(NamedTuple):
    """Why a step can never take what the one before it gives.

    Args:
        output: the model of the given value.
        given: the model of the accepted value.
        problem: what surely fails, in words.
    """

    output: str
    given: str
    problem: str


class MissingField(NamedTuple):
    """A field that a model does not have.

    Args:
        field: its name.
        model: the model.
        known: the fields that it has, in words.
    """

    field: str
    model: str
    known: str


class MisfitVerdict(NamedTuple):
    """Why a reviewer can never give a verdict.

    Args:
        output: the model of what it gives.
        problem: what surely lacks or is something else, in words.
    """

    output: str
    problem: str


class HandlerChecks(Protocol):
    """Knows the handlers' models."""

    def __hash__(self) -> int: ...

    def check(self, step: StepHandler) -> None:
        """Resolve the handler.

        Raises:
            HandlerNotFoundError: its path does not lead to a function that takes (ctx, given).
        """
        ...

    def check_entry_actions(self, step: EnteredStep) -> None:
        """Resolve the entry actions.

        Raises:
            EntryActionNotFoundError: a path does not lead to a function that takes (ctx, given).
        """
        ...

    def broken_link(
        self,
        step: StepOutput,
        following: StepHandler,
        *,
        gives: PlaceShape = "value",
        takes_item: bool = False,
    ) -> BrokenLink | None:
        """Return why no output of the step fits the next one; None: some may fit.

        Args:
            step: the step.
            following: the next one.
            gives: what the place of the step makes of its outputs.
            takes_item: whether the next one takes an item of a list that its place is given.

        A handler or a model that does not resolve breaks nothing here.
        """
        ...

    def missing_field(self, step: StepHandler, names: Sequence[str]) -> MissingField | None:
        """Return the first of these that what the step takes surely has no field for; or None.

        A handler or a model that does not resolve lacks nothing here.
        """
        ...

    def value_at(self, step: StepHandler, given: str, names: Sequence[str]) -> Any:
        """Return the JSON value that the handler finds at a path of its model; None: there is none.

        A handler that does not resolve, and one whose model this JSON text does not fit, has none.
        """
        ...

    def misfit_verdict(self, reviewer: StepOutput) -> MisfitVerdict | None:
        """Return why no output of the reviewer is a verdict; None: some may be.

        A handler or a model that does not resolve is no misfit here.
        """
        ...

    def problem_with(self, step: StepHandler, given: str) -> Misfit | None:
        """Return why this JSON text does not fit the handler's model; or None."""
        ...

    def problem_with_output(
        self, step: StepOutput, output: str, following: StepHandler | None = None
    ) -> ErrorRecord | None:
        """Return why this JSON text is no output of the step, or not for the one that follows it.

        Args:
            step: the step it is the output of.
            output: JSON text.
            following: the next step, where a handler of this bundle runs it.

        Returns:
            None where it fits. A next handler that does not resolve refuses nothing: the output
            is good, and that handler's own attempt will say what is wrong.

        Raises:
            HandlerNotFoundError: the model of the step's output does not resolve.
        """
        ...

    def signals_in(self, step: StepHandler) -> frozenset[str] | None:
        """Return the names of signals that the code of the handler waits for; None: any."""
        ...

    def error_of_output(self, step_type: str, output: str) -> ErrorRecord:
        """Return the error that an output of status ERROR says, bounded and without secrets."""
        ...
