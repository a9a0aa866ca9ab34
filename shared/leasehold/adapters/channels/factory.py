"""Opens what sends to a channel, and imports no other kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from leasehold.errors import ChannelUnavailableError, MissingExtraError
from leasehold.frozen import dataclass
from leasehold.ports.channel import Channel
from leasehold.ports.clock import Clock
from leasehold.registry.channels import ChannelEntry, is_set, require_packages

if TYPE_CHECKING:
    from leasehold.adapters.channels.http_post import Resolve


@dataclass(frozen=True, slots=True, eq=False)
class ChannelOpener:
    """Opens what sends to a channel, once for each. Senders take from here what they work with.

    Args:
        environ: where the variables are that channels name; they are read at each send.
        clock: the time.
        report: logs the facts of an announcement.
        find_sender: returns the function of a channel that has one: `ChannelEntry.function`.
        base_url: where the runs API is, for links; empty: not set. See `EventMessage.content`.
        allow_local: see `AddressGuard`.
        resolve: asks for the addresses of a host; None: as the system does.
    """

    environ: Mapping[str, str] = field(repr=False)
    clock: Clock
    report: Callable[[Mapping[str, Any]], object]
    find_sender: Callable[[ChannelEntry], Callable[[Mapping[str, Any], float], object]]
    base_url: str = ""
    allow_local: bool = False
    resolve: Resolve | None = None
    _opened: dict[ChannelEntry, Channel] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, entry: ChannelEntry) -> Channel:
        """Return what sends to a channel.

        Raises:
            ChannelUnavailableError: something is missing that it needs here.
        """
        if entry not in self._opened:
            try:
                self._opened[entry] = self._open(entry)
            except MissingExtraError as error:
                problem = error.message.rstrip(".")
                raise ChannelUnavailableError(channel=entry.name, problem=problem) from None
        return self._opened[entry]

    def is_variable_set(self, name: str) -> bool:
        """Return whether a variable is set, or the one that names the file with its value."""
        return is_set(self.environ, name)

    def _open(self, entry: ChannelEntry) -> Channel:
        require_packages(entry)
        if not entry.opens:
            problem = f"nothing sends to channels of class {type(entry).__name__}"
            raise ChannelUnavailableError(channel=entry.name, problem=problem)
        module, _, name = entry.opens.partition(":")
        sender: Channel = getattr(import_module(module), name)(entry, self)
        return sender
