"""What the loops of a handler have done, phase by phase, as their checkpoints keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The one field of what they keep: it tells their checkpoints from any other.
_FIELD: Final = "checkpointed"


class Phase:
    """What one loop has done.

    Args:
        name: which loop it is.
        done: how many items an earlier attempt has done.
        results: what that made of them.

    Attributes:
        results: what was made of the items, also of one that is not done yet.
        is_over: whether there is nothing left to do, however many items there are.
        kept: how many items are done of those that are kept.
    """

    def __init__(
        self, name: str, done: int = 0, results: list[Any] | None = None, *, is_over: bool = False
    ) -> None:
        self.name = name
        self.results = [] if results is None else results
        self.is_over = is_over
        self.kept = done
        self._finished = done, len(self.results)

    @property
    def done(self) -> int:
        """How many items are done."""
        return self._finished[0]

    @property
    def has_new(self) -> bool:
        """Whether anything is done that is not kept."""
        return self.done > self.kept

    def finish_item(self) -> None:
        """Note that one more item is done, and what is in the results by now is made of them."""
        self._finished = self.done + 1, len(self.results)  # at once: a limit may be given anywhere

    def begin_anew(self) -> None:
        """Forget all that was done."""
        self.results.clear()
        self._finished, self.kept = (0, 0), 0

    def to_json(self) -> Mapping[str, Any]:
        """Return it as it is kept: without what was made of an item that is not done."""
        done, made = self._finished
        results = self.results if self.is_over else self.results[:made]
        return {"phase": self.name, "done": done, "isOver": self.is_over, "results": results}


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
    return Phase(name, done, results, is_over=is_over) if fits and is_count else None
