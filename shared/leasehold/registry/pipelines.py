"""The pipeline registry, and the catalog that holds both it and the step types."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.errors import InvalidEntryError, UnknownPipelineError
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEntry:
    """A pipeline: step types in the order they run, each at most once.

    Raises:
        InvalidEntryError: no steps, or one that comes back to itself.
    """

    name: str
    steps: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            self._refuse(self.steps, "at least one step")
        twice = [step for place, step in enumerate(self.steps) if step in self.steps[:place]]
        if twice:
            self._refuse(self.steps, f"each step once; {twice[0]!r} makes a cycle")

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    def _refuse(self, value: object, allowed: str) -> None:
        raise InvalidEntryError(
            registry="pipelines", key=self.name, field="steps", value=value, allowed=allowed
        )


@dataclass(frozen=True, slots=True)
class Catalog:
    """What this bundle runs.

    Raises:
        InvalidEntryError: a pipeline names a step type that is not there, or two step types
            share a variable.
    """

    steps: Registry[StepDispatchEntry]
    pipelines: Registry[PipelineEntry]

    def __post_init__(self) -> None:
        for pipeline in self.pipelines:
            for step in pipeline.steps:
                if step not in self.steps:
                    known = "steps of the dispatch registry: " + ", ".join(self.steps.keys())
                    raise InvalidEntryError(
                        registry="pipelines",
                        key=pipeline.name,
                        field="steps",
                        value=step,
                        allowed=known,
                    )
        owners: dict[str, str] = {}
        for entry in self.steps:
            for name in entry.env_overrides:
                if owners.setdefault(name, entry.key) != entry.key:
                    raise InvalidEntryError(
                        registry="dispatch",
                        key=entry.key,
                        field="step_type",
                        value=entry.key,
                        allowed=f"a name whose variable {name} is not that of {owners[name]!r}",
                    )

    def pipeline(self, name: str) -> PipelineEntry:
        """Return the pipeline, or raise UnknownPipelineError that names the known ones."""
        entry = self.pipelines.get(name)
        if entry is None:
            known = ", ".join(self.pipelines.keys()) or "none"
            raise UnknownPipelineError(pipeline=name, known=known)
        return entry
