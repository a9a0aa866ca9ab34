"""What can lie over a run's status and say why the run does not move; one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leasehold.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class OverlayEntry:
    """An overlay.

    Args:
        key: the field of a manifest, and of its summary, that is true while the overlay holds.
        label: the word behind the status.
        icon: one character, for screens.
        colour: of the run while the overlay holds: red, yellow or grey.
        tooltip: what it means, in whole sentences.
        hides_status: whether a screen shows icon and label in place of the status.
    """

    key: str
    label: str
    icon: str
    colour: str
    tooltip: str
    hides_status: bool = False


OVERLAYS: Final = Registry(
    "overlays",
    [
        OverlayEntry(
            "paused",
            "paused",
            "‖",
            "yellow",
            "A person holds the run. An attempt that runs may end; nothing more is dispatched.",
        ),
        OverlayEntry(
            "cancelled",
            "cancelled",
            "⊘",
            "grey",
            "A person ended the run. It never moves again.",
        ),
        OverlayEntry(
            "dead_lettered",
            "dead-lettered",
            "💀",
            "red",
            "The engine gave the run up, and says why. It never moves again.",
            hides_status=True,
        ),
    ],
)
