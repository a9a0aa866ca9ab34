"""The entries of a pipeline's plan: what runs at each of its places, in order.

A text `S` in the place of an entry is `Step(S)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from leasehold.domain.manifest_parts import Place
from leasehold.domain.signal import LONGEST_WAIT, SHORTEST_WAIT, Otherwise, WaitRule
from leasehold.domain.stored import replace
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
        is_time = isinstance(timeout, timedelta) and SHORTEST_WAIT <= timeout <= LONGEST_WAIT
        if timeout is not None and not is_time:
            yield "steps.timeout", timeout, allowed
        if self.otherwise not in {one.value for one in Otherwise}:
            allowed = ", ".join(repr(one.value) for one in Otherwise)
            yield "steps.otherwise", self.otherwise, allowed
        elif timeout is None and self.otherwise != Otherwise.BLOCK.value:
            yield "steps.otherwise", self.otherwise, "'block' without a timeout"


_PATH: Final = re.compile(r"(?:[\w.]+:[A-Za-z_]\w*)?")

#: An entry that is not a bare step type.
Entry = Step | Wait
#: An entry of `PipelineEntry.steps`, as it is given.
PlanEntry = str | Entry

#: The classes of entries.
ENTRY_CLASSES: Final = (Step, Wait)


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
