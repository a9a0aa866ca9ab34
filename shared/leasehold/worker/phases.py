"""What the loops of a handler have done, phase by phase, as their checkpoints keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: The one field of what they keep: it tells their checkpoints from any other.
_FIELD: Final = "checkpointed"


@dataclass(slots=True)
class Phase:
    """What one loop has done.

    Attributes:
        name: which loop it is.
        done: how many items.
        results: what was made of them.
        is_over: whether there is nothing left to do, however many items there are.
    """

    name: str
    done: int = 0
    results: list[Any] = field(default_factory=list)
    is_over: bool = False

    def to_json(self) -> Mapping[str, Any]:
        """Return it as it is kept."""
        return {
            "phase": self.name,
            "done": self.done,
            "isOver": self.is_over,
            "results": self.results,
        }


class Phases:
    """All phases of a handler that have begun, in any attempt of its step."""

    def __init__(self) -> None:
        self._by_name: dict[str, Phase] = {}

    def __getitem__(self, name: str) -> Phase:
        """Return a phase; a new one, unless an earlier attempt has begun it."""
        return self._by_name.setdefault(name, Phase(name))

    def to_json(self) -> Any:
        """Return them as they are kept; a phase that has done nothing is not."""
        begun = [one for one in self._by_name.values() if one.done or one.results or one.is_over]
        return {_FIELD: [phase.to_json() for phase in begun]}

    @classmethod
    def restored(cls, kept: Any) -> Phases | None:
        """Return the phases that are kept; None: it is not what `to_json` returns."""
        phases = cls()
        found = kept.get(_FIELD) if isinstance(kept, dict) and len(kept) == 1 else None
        if not isinstance(found, list):
            return None
        for one in found:
            phase = _restored(one)
            if phase is None:
                return None
            phases._by_name[phase.name] = phase
        return phases


def _restored(kept: Any) -> Phase | None:
    if not isinstance(kept, dict) or kept.keys() != {"phase", "done", "isOver", "results"}:
        return None
    name, done, results, is_over = (kept[key] for key in ("phase", "done", "results", "isOver"))
    fits = isinstance(name, str) and isinstance(results, list) and isinstance(is_over, bool)
    is_count = type(done) is int and done >= 0
    return Phase(name, done, results, is_over) if fits and is_count else None
