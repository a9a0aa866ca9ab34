"""How much of its documents a review keeps, whatever is in them."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: What is kept at most of all documents together: enough for 20 MB of prose.
MAX_PARTS: Final[Mapping[str, int]] = {"sections": 50_000, "links": 50_000, "sentences": 500_000}
LONGEST_NAME: Final = 160  # characters of a title or heading; it stands with all that is below it
LONGEST_TARGET: Final = 1000  # characters of a link's target; one definition may serve many links


class SizeBudget:
    """How much may still be kept, of all documents of a review together."""

    def __init__(self, most: Mapping[str, int] = MAX_PARTS) -> None:
        self._left = dict(most)

    def take(self, kind: str, parts: Sequence[T]) -> Sequence[T]:
        """Return as many of these parts as may still be kept, and count them."""
        kept = parts[: self._left[kind]]
        self._left[kind] -= len(kept)
        return kept


def shortened(name: str) -> str:
    """Return a title or heading as it is carried along."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
