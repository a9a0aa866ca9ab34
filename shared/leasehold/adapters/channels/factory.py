"""Opens what sends to a channel, and imports no other kind."""

# ruff: noqa: PLC0415 - a cold start pays only for the channels it uses

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from leasehold.adapters.channels.variables import Variables
from leasehold.errors import ChannelUnavailableError, MissingExtraError
from leasehold.ports.channel import Channel
from leasehold.ports.clock import Clock
from leasehold.registry.channels import (
    ChannelEntry,
    CustomChannel,
    EmailChannel,
    LogChannel,
    SlackChannel,
    TopicChannel,
    WebhookChannel,
    is_set,
    require_packages,
)

if TYPE_CHECKING:
    from leasehold.adapters.channels.addresses import AddressGuard, Resolve


class ChannelOpener:
    """Opens what sends to a channel, once for each.

    Args:
        environ: where the variables are that channels name; they are read at each send.
        clock: the time.
        report: logs the facts of an announcement.
        find_sender: returns the function of a custom channel.
        base_url: where the runs API is, for links; empty: no one said.
        allow_local: see `AddressGuard`.
        resolve: asks for the addresses of a host; None: as the system does.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        clock: Clock,
        *,
        report: Callable[[Mapping[str, Any]], object],
        find_sender: Callable[[CustomChannel], Callable[[Mapping[str, Any], float], object]],
        base_url: str = "",
        allow_local: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        self._environ = environ
        self._clock = clock
        self._report = report
        self._find_sender = find_sender
        self._base_url = base_url
        self._allow_local = allow_local
        self._resolve = resolve
        self._opened: dict[ChannelEntry, Channel] = {}

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
        return is_set(self._environ, name)

    def _open(self, entry: ChannelEntry) -> Channel:
        require_packages(entry)
        if isinstance(entry, LogChannel):
            from leasehold.adapters.channels.log import LogSender

            return LogSender(self._report, self._base_url)
        if isinstance(entry, SlackChannel):
            return self._open_slack(entry)
        if isinstance(entry, WebhookChannel):
            from leasehold.adapters.channels.webhook import WebhookSender

            variables, guard = self._variables(entry), self._guard(entry)
            return WebhookSender(entry, variables, guard, self._clock, self._base_url)
        if isinstance(entry, EmailChannel):
            from leasehold.adapters.channels.smtp import EmailSender

            return EmailSender(entry, self._variables(entry), self._clock, self._base_url)
        if isinstance(entry, TopicChannel):
            from leasehold.adapters.channels.topic import TopicSender

            return TopicSender(entry, self._base_url)
        if isinstance(entry, CustomChannel):
            from leasehold.adapters.channels.custom import CustomSender

            return CustomSender(entry, self._find_sender, self._base_url)
        problem = f"nothing sends to channels of class {type(entry).__name__}"
        raise ChannelUnavailableError(channel=entry.name, problem=problem)

    def _open_slack(self, entry: SlackChannel) -> Channel:
        from leasehold.adapters.channels.slack import SlackSender

        return SlackSender(
            entry,
            self._variables(entry),
            self._guard(entry),
            self._clock,
            self._base_url,
            allow_local=self._allow_local,
        )

    def _variables(self, entry: ChannelEntry) -> Variables:
        return Variables(self._environ, entry.name)

    def _guard(self, entry: ChannelEntry) -> AddressGuard:
        from leasehold.adapters.channels.addresses import AddressGuard, addresses_of

        resolve = self._resolve or addresses_of
        return AddressGuard(entry.name, resolve, allow_local=self._allow_local)
