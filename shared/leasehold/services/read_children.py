"""The children of a run: how many are done, and where each stands."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.printable import counted
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import replace
from leasehold.frozen import dataclass
from leasehold.services.children import children_of
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run


@dataclass(frozen=True, slots=True)
class ReadChildren:
    """The children of the place that a run is at.

    Args:
        kind: `each`, `parallel` or `child`; empty: it waits for none.
        items: how many items there are in all; 0: they are none.
        done: how many of those are done.
        failed: how many failed, and were left.
        runs: the children, by their names.
    """

    kind: str = ""
    items: int = 0
    done: int = 0
    failed: int = 0
    runs: Sequence[Manifest] = ()

    @property
    def ended(self) -> int:
        """How many children have ended."""
        return sum(run.is_terminal for run in self.runs)

    @property
    def fraction(self) -> float:
        """How far they are, as a share of 1."""
        if self.items:
            return (self.done + self.failed) / self.items
        return self.ended / len(self.runs) if self.runs else 0.0

    @property
    def words(self) -> str:
        """How far they are, for people."""
        if not self.items:
            return ", ".join(f"{_name(run)} is {run.state}" for run in self.runs)
        failed = f", {self.failed} failed" if self.failed else ""
        stopped = sum(run.status is RunStatus.BLOCKED for run in self.runs if not run.is_terminal)
        at_work = counted(len(self.runs) - self.ended - stopped, "lane")
        blocked = f", {counted(stopped, 'lane')} blocked" if stopped else ""
        return f"{self.done} of {self.items} items done{failed}, {at_work} at work{blocked}"


def with_progress_of_children(run: Manifest, fraction: float, words: str) -> Manifest:
    """Return a run that waits for children as it is shown: its step is as far as they are."""
    step = run.position.step
    progress = Progress(fraction=fraction, message=words)
    return replace(run, steps={**run.steps, step: replace(run.steps[step], progress=progress)})


def _name(run: Manifest) -> str:
    return run.run_id if run.parent is None else f"{run.parent.name} ({run.run_id})"


def read_children(engine: Engine, run_id: str) -> ReadChildren:
    """Return the children of the place that a run is at, or raise UnknownRunError."""
    return read_children_of(engine, get_run(engine, run_id))


def read_children_of(engine: Engine, run: Manifest) -> ReadChildren:
    """Return the children of the place that a run is at."""
    children = run.position.children
    if children is None:
        return ReadChildren()
    found = [
        child
        for child in children_of(engine, run)
        if child.parent is not None
        and child.parent.place == run.position.step
        and (child.created_at >= children.since or not child.is_terminal)
    ]
    lanes = [child.lane for child in found if child.lane is not None]
    failed = sum(lane.failed for lane in lanes)
    left = sum(lane.left for lane in lanes)
    return ReadChildren(
        kind=children.kind,
        items=children.items,
        done=max(0, children.items - left - failed) if children.items else 0,
        failed=failed,
        runs=sorted(found, key=_by_name),
    )


def _by_name(child: Manifest) -> tuple[object, ...]:
    """Return what children are sorted by: those that begin together by name, lane 9 before 10."""
    name = "" if child.parent is None else child.parent.name
    return child.created_at, len(name), name, child.run_id
