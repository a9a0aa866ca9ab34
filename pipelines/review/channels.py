"""Where the review's report is announced: REVIEW_CHANNELS names the channels.

What is secret, the entries name by its variable; docs/review-pipeline.md lists the variables.
"""

from collections.abc import Callable, Mapping
from typing import Final

from leasehold import (
    EmailChannel,
    LogChannel,
    Registry,
    SlackChannel,
    TopicChannel,
    WebhookChannel,
)
from leasehold.errors import SettingError, UnsetSettingError
from leasehold.registry.channels import ChannelEntry, is_set

CHANNELS: Final = "REVIEW_CHANNELS"


def channels_of(environ: Mapping[str, str]) -> Registry[ChannelEntry]:
    """Return the channels that the environment names; the log, where it names none.

    Raises:
        SettingError: there is no such channel, or it needs a variable that is not set.
    """
    given = environ.get(CHANNELS, "").strip() or "log"
    names = dict.fromkeys(name.strip() for name in given.split(","))
    if any(name not in _ENTRIES for name in names):
        allowed = f"{', '.join(_ENTRIES)}, or several of them with commas between them"
        raise SettingError(name=CHANNELS, value=given, allowed=allowed)
    return Registry("channels", [_ENTRIES[name](environ) for name in names])


def _email(environ: Mapping[str, str]) -> ChannelEntry:
    recipients = _needed(environ, "email", "REVIEW_EMAIL_TO", "addresses with commas between them")
    signs_in = is_set(environ, "SMTP_USER")
    return EmailChannel(
        name="email",
        sender=_needed(environ, "email", "REVIEW_EMAIL_FROM", "an address as ops@example.com"),
        recipients=tuple(address.strip() for address in recipients.split(",")),
        user_variable="SMTP_USER" if signs_in else None,
        password_variable="SMTP_PASSWORD" if signs_in else None,
    )


def _topic(environ: Mapping[str, str]) -> ChannelEntry:
    allowed = "projects/PROJECT/topics/TOPIC"
    return TopicChannel(name="topic", topic=_needed(environ, "topic", "REVIEW_TOPIC", allowed))


def _needed(environ: Mapping[str, str], channel: str, name: str, allowed: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        problem = f"{CHANNELS} names {channel}"
        raise UnsetSettingError(name=name, problem=problem, allowed=allowed)
    return value


_ENTRIES: Final[Mapping[str, Callable[[Mapping[str, str]], ChannelEntry]]] = {
    "log": lambda _: LogChannel(name="log"),
    "slack": lambda _: SlackChannel(name="slack", url_variable="REVIEW_SLACK_URL"),
    "webhook": lambda _: WebhookChannel(
        name="webhook",
        url_variable="REVIEW_WEBHOOK_URL",
        secret_variable="REVIEW_WEBHOOK_SECRET",  # noqa: S106 - the name of a variable
    ),
    "email": _email,
    "topic": _topic,
}
