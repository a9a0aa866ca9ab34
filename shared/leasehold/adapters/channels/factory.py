"""Opens what sends to a channel, and imports no other kind."""

# ruff: noqa: PLC0415 - a cold start pays only for the channels it uses

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.adapters.channels.variables import Variables
from leasehold.domain.announcement import Priority
from leasehold.domain.delivery import MAX_MESSAGE_ID_CHARS, Delivery
from leasehold.domain.event_message import EventMessage, announced_facts
from leasehold.domain.printable import printable
from leasehold.errors import ChannelUnavailableError, MissingExtraError, SenderNotFoundError
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
    from leasehold.adapters.channels.http_post import AddressGuard, Resolve


class ChannelOpener:
    """Opens what sends to a channel, once for each.

    Args:
        environ: where the variables are that channels name; they are read at each send.
        clock: the time.
        report: logs the facts of an announcement.
        find_sender: returns the function of a custom channel.
        base_url: where the runs API is, for links; empty: not set.
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
            return LogSender(self._report, str(self._base_url))  # no signed link in a log
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
        from leasehold.adapters.channels.http_post import AddressGuard, addresses_of

        resolve = self._resolve or addresses_of
        return AddressGuard(entry.name, resolve, allow_local=self._allow_local)


# A function of a user, which is called with each announcement.


#: What is called: it gets the message and the seconds that it has.
Send = Callable[[Mapping[str, Any], float], object]


class CustomSender:
    """Calls a function with each announcement.

    Args:
        entry: the channel.
        find: returns the function.
        base_url: see `EventMessage.content`.
    """

    def __init__(
        self, entry: CustomChannel, find: Callable[[CustomChannel], Send], base_url: str
    ) -> None:
        self._entry = entry
        self._find = find
        self._base_url = base_url

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Call the function; return what it calls the message, if that is a text."""
        call = BoundedCall(self._entry.name, timeout)
        return call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> str | None:
        try:
            function = self._find(self._entry)
        except SenderNotFoundError as error:  # another deploy may have it
            raise ChannelUnavailableError(
                channel=self._entry.name, problem=error.message.rstrip(".")
            ) from None
        message = EventMessage(delivery).content(self._base_url)
        call.begin_sending()
        name = function(message, call.seconds_left())
        return printable(name[:MAX_MESSAGE_ID_CHARS]) if isinstance(name, str) else None


# Announcements as lines of the structured log.


class LogSender:
    """Logs each announcement.

    Args:
        report: logs the facts of an event.
        base_url: where the runs API is, for the links.
    """

    def __init__(self, report: Callable[[Mapping[str, Any]], object], base_url: str) -> None:
        self._report = report
        self._base_url = base_url

    def send(self, delivery: Delivery, *, timeout: float) -> None:  # noqa: ARG002 - nothing is awaited
        """Log the announcement; a log gives it no name."""
        self._report(
            {
                "severity": "WARNING" if delivery.priority == Priority.HIGH else "INFO",
                "message": delivery.summary,
                **announced_facts(delivery, self._base_url),
                "event": str(delivery.event).upper(),
                "key": delivery.key,
                "at": delivery.created_at.isoformat(),
            }
        )
