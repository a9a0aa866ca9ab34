"""The entries of a pipeline's plan: what runs at each of its places, in order.

A text `S` in the place of an entry is `Step(S)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

from leasehold.domain.children import MAX_LANES, EachRule
from leasehold.domain.manifest_parts import Place
from leasehold.domain.signal import MAX_SIGNAL_WAIT, MIN_SIGNAL_WAIT, Otherwise, WaitRule
from leasehold.domain.stored import replace
from leasehold.frozen import dataclass
from leasehold.registry.dispatch import REMOTE, STEP_TYPE_WORDS, is_step_type

#: A field, its value, and what is allowed in its place.
Problem = tuple[str, object, str]


@dataclass(frozen=True, slots=True)
class Step:
    """A step at a place of a pipeline, under a name: so one step type may have several places.

    Its record, its output, its trials and all that is said of it have the name; the settings of the
    step type hold for each of its places.

    Args:
        step_type: the step type.
        name: what the place is called, unlike any other and any other step type; empty: as its
            step type.
        skips_to: the later places that its handler may name, `StepResult(…, skip_to=…)`, to leave
            out those between. Each takes the output as the next one does.
    """

    step_type: str
    name: str = ""
    skips_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.step_type)

    @property
    def step_types(self) -> tuple[str, ...]:
        """The step types that run at the place."""
        return (self.step_type,)

    @property
    def place(self) -> Place | None:
        """What a run keeps of the place; None: nothing, as it is a plain step."""
        return None if self.name == self.step_type else Place(step_type=self.step_type)

    def problems(self) -> Iterator[Problem]:
        """Yield what keeps it from being an entry."""
        if not isinstance(self.step_type, str):
            yield "steps", self.step_type, "the names of step types"
        elif not isinstance(self.skips_to, tuple):
            yield "steps", self.skips_to, "for skips_to a tuple of names"
        elif not isinstance(self.name, str) or not is_step_type(self.name):
            yield "steps", self.name, f"for a name {STEP_TYPE_WORDS}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A place of a pipeline that waits for the signal of its name, and hands its value on.

    Nothing runs while it waits. A signal that came before is there at once.

    Args:
        name: of the place, and of the signal.
        model: what the value has to fit: a class, or its path `module:Class`; None: any JSON value.
        timeout: how long it waits, at least a second; None: for any time.
        otherwise: what then: `block` has a person decide, and a late signal still counts;
            `continue` hands null on; `fail` gives the run up.
    """

    name: str
    model: Any = None
    timeout: timedelta | None = None
    otherwise: Literal["block", "continue", "fail"] = "block"

    @property
    def step_types(self) -> tuple[str, ...]:
        """None: no step runs there."""
        return ()

    @property
    def step_type(self) -> str:
        """Its name, for messages."""
        return self.name

    @property
    def handler(self) -> str:
        """What has no code here, as a remote step: its output alone can be checked."""
        return REMOTE

    @property
    def output(self) -> str:
        """The path of the model that it hands on; empty: any value."""
        if self.model is None or isinstance(self.model, str):
            return self.model or ""
        return f"{self.model.__module__}:{self.model.__qualname__}"

    @property
    def place(self) -> Place:
        """The place as a run keeps it; `placed` gives it the queue of a step beside it."""
        timeout_s = None if self.timeout is None else self.timeout.total_seconds()
        rule = WaitRule(
            timeout_s=timeout_s, otherwise=str(self.otherwise), model=self.output or None
        )
        return Place(wait=rule)

    def problems(self) -> Iterator[Problem]:
        """Yield what keeps it from being an entry."""
        if not isinstance(self.name, str) or not is_step_type(self.name):
            yield "steps", self.name, f"for the name of a Wait {STEP_TYPE_WORDS}"
        if not isinstance(self.model, str | type | None) or not _PATH.fullmatch(self.output):
            allowed = "a class at the top of its module, 'module:Class', or None"
            yield "steps.model", self.model, allowed
        timeout, allowed = self.timeout, "a timedelta from 1 s to 10 years, or None"
        is_time = isinstance(timeout, timedelta) and MIN_SIGNAL_WAIT <= timeout <= MAX_SIGNAL_WAIT
        if timeout is not None and not is_time:
            yield "steps.timeout", timeout, allowed
        if self.otherwise not in {one.value for one in Otherwise}:
            allowed = ", ".join(repr(one.value) for one in Otherwise)
            yield "steps.otherwise", self.otherwise, allowed
        elif timeout is None and self.otherwise != Otherwise.BLOCK.value:
            yield "steps.otherwise", self.otherwise, "'block' without a timeout"


_PATH: Final = re.compile(r"(?:[\w.]+:[A-Za-z_]\w*)?")


@dataclass(frozen=True, slots=True)
class Each:
    """A step that runs once for each item of the list that the place is given.

    `list[T]` comes in, the step takes a `T` and makes a `U` of it, and `list[U]` goes out, in the
    order of the items. Where some may fail, `Outcomes[U]` goes out in place of that.

    Args:
        step_type: the step type.
        at_once: how many items are worked on at once, 1 to 100.
        tolerate: which share of the items may fail, 0 to 1; 0: none. A run of which more fail
            blocks, and keeps what is done.
        batch: how many items one attempt is given, as a `list[T]` of which the step makes a
            `list[U]` of as many; 1: an item by itself.
        name: what the place is called; empty: as its step type.
    """

    step_type: str
    at_once: int = 10
    tolerate: float = 0.0
    batch: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.step_type)

    @property
    def step_types(self) -> tuple[str, ...]:
        """The step types that run at the place."""
        return (self.step_type,)

    @property
    def place(self) -> Place:
        """The place as a run keeps it."""
        rule = EachRule(at_once=self.at_once, tolerate=float(self.tolerate), batch=self.batch)
        return Place(step_type=self.step_type, each=rule)

    def problems(self) -> Iterator[Problem]:
        """Yield what keeps it from being an entry."""
        yield from Step(self.step_type, self.name).problems()
        for field, count, most in (
            ("at_once", self.at_once, MAX_LANES),
            ("batch", self.batch, MAX_BATCH_ITEMS),
        ):
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
                yield f"steps.{field}", count, f"a whole number from 1 to {most}"
        share = self.tolerate
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            yield "steps.tolerate", share, "a share from 0 to 1"


#: One attempt is given no more items.
MAX_BATCH_ITEMS: Final = 1000


@dataclass(frozen=True, slots=True, init=False)
class Parallel:
    """Steps that run at once, each on what the place is given.

    An object goes out that has the output of each step under its name.

    Args:
        step_types: the step types, two at least.
        name: what the place is called; empty: the names of its steps, with `-and-` between them.
    """

    step_types: tuple[str, ...]
    name: str

    def __init__(self, *step_types: str, name: str = "") -> None:
        object.__setattr__(self, "step_types", step_types)
        object.__setattr__(self, "name", name or "-and-".join(map(str, step_types)))

    @property
    def step_type(self) -> str:
        """The step type whose queue the place has."""
        return self.step_types[0]

    @property
    def place(self) -> Place:
        """The place as a run keeps it."""
        return Place(step_type=self.step_type, parallel=self.step_types)

    def problems(self) -> Iterator[Problem]:
        """Yield what keeps it from being an entry."""
        if len(self.step_types) < 2 or len({*self.step_types}) < len(self.step_types):  # noqa: PLR2004
            yield "steps", self.step_types, "two different step types or more in a Parallel"
        elif len(self.step_types) > MAX_LANES:
            yield "steps", len(self.step_types), f"at most {MAX_LANES} step types in a Parallel"
        for step_type in self.step_types:
            yield from Step(step_type).problems()
        yield from Step(self.step_types[0] if self.step_types else "", self.name).problems()


@dataclass(frozen=True, slots=True)
class Child:
    """A run of another pipeline, which is waited for: given what the place is, its output goes out.

    Args:
        pipeline: the pipeline.
        name: what the place is called; empty: as its pipeline.
    """

    pipeline: str
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.pipeline)

    @property
    def step_types(self) -> tuple[str, ...]:
        """The step types that run at the place itself: none."""
        return ()

    @property
    def place(self) -> Place:
        """The place as a run keeps it; its step type is that of a neighbour, for its queue."""
        return Place(child=self.pipeline)

    def problems(self) -> Iterator[Problem]:
        """Yield what keeps it from being an entry."""
        if not isinstance(self.pipeline, str) or not self.pipeline:
            yield "steps", self.pipeline, "the name of a pipeline in a Child"
        elif not isinstance(self.name, str) or not is_step_type(self.name):
            yield "steps", self.name, f"as the name of a Child {STEP_TYPE_WORDS}"


#: An entry that is not a bare step type.
Entry = Step | Wait | Each | Parallel | Child
#: An entry of `PipelineEntry.steps`, as it is given.
PlanEntry = str | Entry

#: The classes of entries.
ENTRY_CLASSES: Final = (Step, Wait, Each, Parallel, Child)


def placed(entries: Sequence[Entry]) -> dict[str, Place]:
    """Return what runs at the places that are not plain steps, by their names.

    A place without a step has the queue and the settings of one beside it, before it if there is.
    """
    places = {entry.name: place for entry in entries if (place := entry.place)}
    for at, entry in enumerate(entries):
        if entry.step_types:
            continue
        others = [*reversed(entries[:at]), *entries[at + 1 :]]
        beside = next((one.step_types[0] for one in others if one.step_types), "")
        places[entry.name] = replace(places[entry.name], step_type=beside)
    return places


def entry_of(given: Any) -> Entry | None:
    """Return the entry that was given; None: it is none."""
    if isinstance(given, str):
        return Step(given)
    return given if isinstance(given, ENTRY_CLASSES) else None
