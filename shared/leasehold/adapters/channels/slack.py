"""Slack, by an incoming webhook, with the official client.

The client makes the request; it is sent by us, since the client itself would follow redirects, use
a proxy of the environment, and look for the host once more.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.request import Request

from slack_sdk.webhook import WebhookClient, WebhookResponse

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.adapters.channels.http_post import AddressGuard, Answer, Endpoint, post, refusal_of
from leasehold.adapters.channels.variables import Variables
from leasehold.domain.announcement import Priority
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import announced_facts
from leasehold.errors import ChannelRefusedError
from leasehold.registry.channels import SlackChannel

if TYPE_CHECKING:
    from leasehold.adapters.channels.factory import ChannelOpener

HOSTS: Final = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})

#: What Slack says of a webhook that will never take anything, or of a message it never takes.
_FOR_GOOD: Final = frozenset(
    {
        "action_prohibited",
        "channel_is_archived",
        "channel_not_found",
        "invalid_payload",
        "invalid_token",
        "no_active_hooks",
        "no_service",
        "no_service_id",
        "no_team",
        "no_text",
        "posting_to_general_channel_denied",
        "team_disabled",
        "user_not_found",
    }
)
_MAX_EXCERPT_BYTES: Final = 200

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: Summary and detail share a block of 3,000 characters.
_MAX_TEXT_CHARS: Final = 1200


class SlackSender:
    """Posts each announcement to a channel of Slack.

    Args:
        entry: the channel.
        opener: has its variable, and says which addresses may be called, and whether another host
            may play Slack.
    """

    def __init__(self, entry: SlackChannel, opener: ChannelOpener) -> None:
        self.entry, self.opener = entry, opener
        self.variables = Variables(opener.environ, entry.name)
        self.guard = AddressGuard(entry.name, opener.resolve, allow_local=opener.allow_local)

    def send(self, delivery: Delivery, *, timeout: float) -> None:
        """Post the announcement; Slack gives it no name, and takes no idempotency key."""
        call = BoundedCall(self.entry.name, timeout)
        call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> None:
        url = self.variables.read(self.entry.url_variable)
        client = _Client(url, call, self._endpoint(url), self.guard)
        client.send_dict(message_of(delivery, self.opener.base_url))
        answer = client.answer
        if answer is None or answer.is_taken:
            return
        word = answer.excerpt.strip()
        if word in _FOR_GOOD:
            problem = f"Slack answered {answer.status}, {word}"
            raise ChannelRefusedError(channel=self.entry.name, problem=problem)
        raise refusal_of(self.entry.name, "Slack", answer, self.opener.clock.now())

    def _endpoint(self, url: str) -> Endpoint:
        endpoint = self.guard.endpoint(url)
        if endpoint.host not in HOSTS and not self.opener.allow_local:
            problem = f"{self.entry.url_variable} does not begin with https://hooks.slack.com/"
            raise ChannelRefusedError(channel=self.entry.name, problem=problem)
        return endpoint


class _Client(WebhookClient):
    """The official client; what it sends goes to the addresses that were checked."""

    def __init__(
        self, url: str, call: BoundedCall, endpoint: Endpoint, guard: AddressGuard
    ) -> None:
        super().__init__(url, logger=_SILENT, retry_handlers=[])
        self.answer: Answer | None = None
        self._call = call
        self._endpoint = endpoint
        self._guard = guard

    def _perform_http_request_internal(self, url: str, req: Request) -> WebhookResponse:
        body: Any = req.data
        addresses = self._guard.addresses(self._endpoint)
        headers = dict(req.header_items())
        answer = post(
            self._call, self._endpoint, addresses, body, headers, excerpt=_MAX_EXCERPT_BYTES
        )
        self.answer = answer
        return WebhookResponse(
            url=url, status_code=answer.status, body=answer.excerpt, headers=dict(answer.headers)
        )


#: The client logs addresses, which are secrets here.
_SILENT: Final = logging.getLogger("leasehold.slack_sdk")
_SILENT.setLevel(logging.CRITICAL + 1)


def message_of(delivery: Delivery, base_url: str) -> dict[str, Any]:
    """Return an announcement as Slack displays it.

    Text of a run stands where Slack reads no markup, and what it may read everywhere, links and
    mentions, is escaped.
    """
    facts = announced_facts(delivery, base_url)
    mark = "\N{LARGE RED CIRCLE} " if delivery.priority == Priority.HIGH else ""
    texts = [_escaped(facts[name]) for name in ("summary", "detail") if name in facts]
    said = {"type": "plain_text", "text": mark + "\n".join(texts), "emoji": False}
    blocks = [{"type": "section", "text": said}]
    if base_url:
        links = " · ".join(f"<{_escaped(url)}|{name}>" for name, url in facts["links"].items())
        linked = {"type": "mrkdwn", "text": links, "verbatim": True}  # it makes no others
        blocks.append({"type": "section", "text": linked})
    return {
        "text": _escaped(facts["summary"]),  # in a notification
        "mrkdwn": False,
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _escaped(text: str) -> str:
    """Return a text without control characters of Slack's, as far as a block takes it."""
    parts = [_ENTITIES.get(character, character) for character in text]
    while sum(map(len, parts)) > _MAX_TEXT_CHARS:
        parts.pop()
    return "".join(parts)
