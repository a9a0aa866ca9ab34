"""The channel registry: the receivers of messages that a run ended, or waits for a person.

The secrets of a channel are in the environment. An entry names the variables, and nothing
of it is a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import ClassVar, Final

from leasehold.domain.announcement import AnnouncedEvent
from leasehold.errors import InvalidEntryError
from leasehold.frozen import dataclass
from leasehold.registry.extras import require_extra
from leasehold.registry.registry import Registry

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_FUNCTION: Final = re.compile(r"[\w.]+:[A-Za-z_]\w*")
_TOPIC: Final = re.compile(r"projects/[a-z0-9:.-]{1,60}/topics/[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")
_MAX_RECIPIENTS: Final = 50

#: How the fields end that name a variable.
_OF_VARIABLE: Final = "_variable"
#: Behind the name of a variable: that of another one, with the path of a file that holds the value.
FILE_SUFFIX: Final = "_FILE"


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
    opens: ClassVar[str] = ""  # `module:class` of what sends, which is imported when it is opened
    may_be_none: ClassVar[tuple[str, ...]] = ()  # of the fields that name a variable
    needs: ClassVar[tuple[str, str] | None] = None  # an extra, and the module of it
    has_signed_links: ClassVar[bool] = True  # with which people answer without signing in

    name: str
    events: tuple[AnnouncedEvent | str, ...] = ()
    pipelines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            self._refuse("name", self.name, "a letter, then up to 62 of a-z A-Z 0-9 _ -")
        known = ", ".join(AnnouncedEvent)
        object.__setattr__(self, "events", self._texts("events", f"a tuple of {known}"))
        for event in self.events:
            if event not in tuple(AnnouncedEvent):
                self._refuse("events", event, known)
        object.__setattr__(self, "pipelines", self._texts("pipelines", "a tuple of pipelines"))
        for field in self._variable_fields():
            self._check_variable(field)

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables it needs: each is set, or the one with `_FILE` behind it names a file."""
        named = (getattr(self, field) for field in self._variable_fields())
        return tuple(variable for variable in named if variable is not None)

    @property
    def function(self) -> str:
        """The user's function that sends, as `module:function`; empty: Leasehold itself sends."""
        return ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of Pub/Sub that it publishes to."""
        return ()

    def wants(self, pipeline: str, event: AnnouncedEvent) -> bool:
        """Return whether the channel gets an event in runs of a pipeline."""
        is_its_event = not self.events or event in self.events
        return is_its_event and (not self.pipelines or pipeline in self.pipelines)

    def _variable_fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self) if field.name.endswith(_OF_VARIABLE))

    def _check_variable(self, field: str) -> None:
        """Refuse what names no variable, and do not repeat it: it may well be the secret itself."""
        named = getattr(self, field)
        if isinstance(named, str) and _VARIABLE.fullmatch(named):
            return
        if named is None and field in self.may_be_none:
            return
        allowed = "the name of the variable that holds it, in capitals, as SLACK_URL"
        self._refuse(field, "[not shown]", allowed)

    def _texts(self, field: str, allowed: str) -> tuple[str, ...]:
        """Return a field of several texts, each as plain text."""
        given = getattr(self, field)
        if not isinstance(given, tuple | list):  # a text would be one for each letter
            self._refuse(field, given, allowed)
        for text in given:
            if not isinstance(text, str):
                self._refuse(field, text, allowed)
        return tuple(map(str, given))

    def _check_text(self, field: str, form: re.Pattern[str], allowed: str) -> None:
        given = getattr(self, field)
        if not isinstance(given, str) or form.fullmatch(given) is None:
            self._refuse(field, given, allowed)

    def _refuse(self, field: str, value: object, allowed: str) -> None:
        raise InvalidEntryError(
            registry="channels", key=str(self.name), field=field, value=value, allowed=allowed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChannel(ChannelEntry):
    """The structured log: one line of JSON an announcement.

    Args:
        name: what deliveries name it by.
        events: only these of `run_completed`, `run_blocked`, `run_dead_lettered` and
            `run_cancelled`; empty: all.
        pipelines: only runs of these pipelines; empty: all.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = "log"
    opens: ClassVar[str] = "leasehold.adapters.channels.log:LogSender"
    has_signed_links: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackChannel(ChannelEntry):
    """A channel of Slack, by an incoming webhook.

    Args:
        name: what deliveries name it by.
        events: only these of `run_completed`, `run_blocked`, `run_dead_lettered` and
            `run_cancelled`; empty: all.
        pipelines: only runs of these pipelines; empty: all.
        url_variable: the variable with the address of the webhook, which is the secret.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = "slack"
    opens: ClassVar[str] = "leasehold.adapters.channels.slack:SlackSender"
    needs: ClassVar[tuple[str, str] | None] = ("channels", "slack_sdk")

    url_variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel(ChannelEntry):
    """A webhook, signed as Standard Webhooks says.

    Args:
        name: what deliveries name it by.
        events: only these of `run_completed`, `run_blocked`, `run_dead_lettered` and
            `run_cancelled`; empty: all.
        pipelines: only runs of these pipelines; empty: all.
        url_variable: the variable with its address.
        secret_variable: the variable with the secret that signs, `whsec_` and base64; several,
            with spaces between them, sign one by one.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = "webhook"
    opens: ClassVar[str] = "leasehold.adapters.channels.webhook:WebhookSender"

    url_variable: str
    secret_variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailChannel(ChannelEntry):
    """E-mail, by a mail server that offers STARTTLS.

    Args:
        name: what deliveries name it by.
        events: only these of `run_completed`, `run_blocked`, `run_dead_lettered` and
            `run_cancelled`; empty: all.
        pipelines: only runs of these pipelines; empty: all.
        sender: the address that it comes from.
        recipients: the addresses that it goes to.
        server_variable: the variable with the mail server, HOST or HOST:PORT; the port is 587 if
            it is not named.
        user_variable, password_variable: the variables with which it signs in; None: it does not.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = "email"
    opens: ClassVar[str] = "leasehold.adapters.channels.smtp:EmailSender"
    may_be_none: ClassVar[tuple[str, ...]] = ("user_variable", "password_variable")

    sender: str
    recipients: tuple[str, ...]
    server_variable: str = "SMTP_SERVER"
    user_variable: str | None = "SMTP_USER"
    password_variable: str | None = "SMTP_PASSWORD"  # noqa: S105 - the name of a variable

    def __post_init__(self) -> None:
        ChannelEntry.__post_init__(self)
        address = "an address as ops@example.com, without a display name"
        self._check_text("sender", _ADDRESS, address)
        object.__setattr__(self, "recipients", self._texts("recipients", "a tuple of addresses"))
        if not 0 < len(self.recipients) <= _MAX_RECIPIENTS:
            self._refuse("recipients", self.recipients, f"1 to {_MAX_RECIPIENTS} addresses")
        for recipient in self.recipients:
            if _ADDRESS.fullmatch(recipient) is None:
                self._refuse("recipients", recipient, address)
        if (self.user_variable is None) != (self.password_variable is None):
            self._refuse("user_variable", self.user_variable, "both variables to sign in, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChannel(ChannelEntry):
    """A topic of Pub/Sub, for programs that want to know.

    Args:
        name: what deliveries name it by.
        events: only these of `run_completed`, `run_blocked`, `run_dead_lettered` and
            `run_cancelled`; empty: all.
        pipelines: only runs of these pipelines; empty: all.
        topic: `projects/PROJECT/topics/TOPIC`.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = "topic"
    opens: ClassVar[str] = "leasehold.adapters.channels.topic:TopicSender"
    needs: ClassVar[tuple[str, str] | None] = ("google", "google.pubsub_v1")

    topic: str

    def __post_init__(self) -> None:
        ChannelEntry.__post_init__(self)
        self._check_text("topic", _TOPIC, "projects/PROJECT/topics/TOPIC")

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic."""
        return (self.topic,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomChannel(ChannelEntry):
    """A function of your own.

    Args:
        name: what deliveries name it by.
        events: only these of `run_completed`, `run_blocked`, `run_dead_lettered` and
            `run_cancelled`; empty: all.
        pipelines: only runs of these pipelines; empty: all.
        sender: `module:function`, resolved when something is sent. The function takes
            `(message, timeout)`: see docs/notifications.md.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    kind: ClassVar[str] = "custom"
    opens: ClassVar[str] = "leasehold.adapters.channels.custom:CustomSender"

    sender: str

    def __post_init__(self) -> None:
        ChannelEntry.__post_init__(self)
        self._check_text("sender", _FUNCTION, "'module:function'")

    @property
    def function(self) -> str:
        """The function."""
        return self.sender


def is_set(environ: Mapping[str, str], variable: str) -> bool:
    """Return whether a variable is set, or the one that names the file with its value."""
    return bool(environ.get(variable) or environ.get(variable + FILE_SUFFIX))


def require_packages(channel: ChannelEntry) -> None:
    """Refuse a channel whose packages are not installed; nothing of them is imported.

    Raises:
        MissingExtraError: the message says what to type.
    """
    if channel.needs is not None:
        extra, module = channel.needs
        require_extra(extra, f"channel {channel.name}", module)


def is_channel_name(text: str) -> bool:
    """Return whether a channel could have this name."""
    return _NAME.fullmatch(text) is not None


NO_CHANNELS: Final[Registry[ChannelEntry]] = Registry("channels", [])
