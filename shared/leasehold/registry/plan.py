"""The entries of a pipeline's plan: what runs at each of its places, in order.

A text `S` in the place of an entry is `Step(S)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from leasehold.domain.manifest_parts import Place
from leasehold.registry.dispatch import STEP_TYPE_WORDS, is_step_type

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


#: An entry of `PipelineEntry.steps`, as it is given.
PlanEntry = str | Step

#: The classes of entries.
ENTRY_CLASSES: Final = (Step,)


def entry_of(given: Any) -> Step | None:
    """Return the entry that was given; None: it is none."""
    if isinstance(given, str):
        return Step(given)
    return given if isinstance(given, ENTRY_CLASSES) else None
