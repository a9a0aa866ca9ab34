"""The channel registry: where people are told that a run has ended, or waits for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from leasehold.domain.announcement import AnnouncedEvent
from leasehold.errors import InvalidEntryError
from leasehold.registry.registry import Registry

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelEntry:
    """A channel; each kind of them is a class below.

    Args:
        name: what deliveries name it by.
        events: only these events; empty: all.
        pipelines: only runs of these pipelines; empty: all.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = ""

    name: str
    events: tuple[AnnouncedEvent | str, ...] = ()
    pipelines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            self._refuse("name", self.name, "a letter, then up to 62 of a-z A-Z 0-9 _ -")

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    def wants(self, pipeline: str, event: AnnouncedEvent) -> bool:
        """Return whether the channel is told of an event in runs of a pipeline."""
        is_its_event = not self.events or event in self.events
        return is_its_event and (not self.pipelines or pipeline in self.pipelines)

    def _refuse(self, field: str, value: object, allowed: str) -> None:
        raise InvalidEntryError(
            registry="channels", key=str(self.name), field=field, value=value, allowed=allowed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChannel(ChannelEntry):
    """The structured log: one line of JSON an announcement."""

    kind: ClassVar[str] = "log"


def is_channel_name(text: str) -> bool:
    """Return whether a channel could have this name."""
    return _NAME.fullmatch(text) is not None


NO_CHANNELS: Final[Registry[ChannelEntry]] = Registry("channels", [])
