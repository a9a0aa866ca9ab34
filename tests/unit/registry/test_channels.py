"""Channels in a catalog: what a row may say, and that no row holds a secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import (
    CustomChannel,
    EmailChannel,
    LogChannel,
    PipelineEntry,
    Registry,
    SlackChannel,
    StepDispatchEntry,
    TopicChannel,
    WebhookChannel,
)
from leasehold.domain.announcement import AnnouncedEvent
from leasehold.errors import DuplicateKeyError, InvalidEntryError
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.pipelines import Catalog
from tests.worlds.deliveries import KINDS

OPS = "ops@shop.example"
SEND = StepDispatchEntry(
    step_type="send",
    handler="letters:send",
    agent_timeout=timedelta(minutes=1),
    dispatch_deadline=timedelta(minutes=2),
)


def mail(**fields: Any) -> EmailChannel:
    return EmailChannel(**({"name": "mail", "sender": OPS, "recipients": (OPS,)} | fields))


def hook(**fields: Any) -> WebhookChannel:
    usable = {"name": "hook", "url_variable": "URL", "secret_variable": "SECRET"}
    return WebhookChannel(**(usable | fields))


@pytest.mark.parametrize(
    ("channel", "kind", "variables"),
    [
        (LogChannel(name="log"), "log", ()),
        (SlackChannel(name="team", url_variable="TEAM_URL"), "slack", ("TEAM_URL",)),
        (hook(), "webhook", ("URL", "SECRET")),
        (mail(), "email", ("SMTP_SERVER", "SMTP_USER", "SMTP_PASSWORD")),
        (mail(user_variable=None, password_variable=None), "email", ("SMTP_SERVER",)),
        (TopicChannel(name="topic", topic="projects/shop/topics/runs"), "topic", ()),
        (CustomChannel(name="pager", sender="pager:page"), "custom", ()),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_channel_names_its_variables(channel: Any, kind: str, variables: tuple[str, ...]) -> None:
    assert (channel.kind, channel.variables) == (kind, variables)


@pytest.mark.parametrize("kind", KINDS)
def test_only_its_row_its_own_file_and_the_public_names_know_a_channel(
    kind: type[ChannelEntry],
) -> None:
    """A new one changes no other file; but for projects that `leasehold init` writes with one."""
    package = Path(leasehold.__file__).parent
    module, _, sender = kind.opens.partition(":")
    own = f"{module.removeprefix('leasehold.').replace('.', '/')}.py"

    naming = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(rf"\b({kind.__name__}|{sender})\b", file.read_text())
    }

    assert callable(getattr(import_module(module), sender))
    of_projects = {name for name in naming if name.startswith("cli/new-")}
    assert naming - of_projects == {"__init__.py", "registry/channels.py", own}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LogChannel(name=""), "name of '' in the channels registry is ''"),
        (lambda: LogChannel(name="a:b"), "a letter, then up to 62"),
        (lambda: LogChannel(name=5), "name of '5'"),  # type: ignore[arg-type] # refused
        (lambda: LogChannel(name="x", events="run_completed"), "a tuple of run_completed, "),  # type: ignore[arg-type] # refused
        (lambda: LogChannel(name="x", events=("done",)), "is 'done'; allowed: run_completed, "),
        (lambda: LogChannel(name="x", events=(5,)), "events of 'x'"),  # type: ignore[arg-type] # refused
        (lambda: LogChannel(name="x", pipelines="letters"), "a tuple of pipelines"),  # type: ignore[arg-type] # refused
        (lambda: mail(sender="Ops <ops@shop.example>"), "without a display name"),
        (lambda: mail(sender="ops@shop.example\r\nBcc: x@y.z"), "sender of 'mail'"),
        (lambda: mail(recipients=()), "1 to 50 addresses"),
        (lambda: mail(recipients=(OPS,) * 51), "1 to 50 addresses"),
        (lambda: mail(recipients=OPS), "a tuple of addresses"),
        (lambda: mail(recipients=("ops",)), "is 'ops'"),
        (lambda: mail(user_variable=None), "both variables to sign in, or None"),
        (lambda: TopicChannel(name="t", topic="runs"), "projects/PROJECT/topics/TOPIC"),
        (lambda: CustomChannel(name="c", sender="pager"), "'module:function'"),
        (lambda: SlackChannel(name="s", url_variable=None), "url_variable of 's'"),  # type: ignore[arg-type] # refused
    ],
)
def test_a_field_that_cannot_be_used_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        make()

    assert words in refused.value.message
    assert refused.value.details["registry"] == "channels"


@pytest.mark.parametrize("secret", ["https://hooks.slack.com/services/T/B/X", "whsec_QUFB", "w0rd"])
def test_a_secret_in_the_place_of_a_variable_is_not_repeated(secret: str) -> None:
    for make in (
        lambda: SlackChannel(name="s", url_variable=secret),
        lambda: hook(secret_variable=secret),
        lambda: mail(password_variable=secret),
    ):
        with pytest.raises(InvalidEntryError, match="the name of the variable") as refused:
            make()
        assert secret not in f"{refused.value!r} {refused.value.details}"


def test_a_channel_gets_the_events_that_it_names() -> None:
    everything = LogChannel(name="all")
    some = LogChannel(name="some", events=["run_blocked"], pipelines=["letters"])  # type: ignore[arg-type] # a list will do

    blocked, completed = AnnouncedEvent.RUN_BLOCKED, AnnouncedEvent.RUN_COMPLETED
    assert everything.wants("letters", completed)
    assert some.wants("letters", blocked)
    assert not some.wants("letters", completed)
    assert not some.wants("others", blocked)


def catalog_with(*channels: Any) -> Catalog:
    steps = Registry("dispatch", [SEND])
    pipelines = Registry("pipelines", [PipelineEntry(name="letters", steps=("send",))])
    return Catalog(steps, pipelines, channels=Registry("channels", channels))


def test_a_catalog_says_who_is_told() -> None:
    catalog = catalog_with(
        LogChannel(name="log"), LogChannel(name="blocks", events=("run_blocked",))
    )

    assert catalog.channels_for("letters", AnnouncedEvent.RUN_BLOCKED) == ("log", "blocks")
    assert catalog.channels_for("letters", AnnouncedEvent.RUN_COMPLETED) == ("log",)


def test_a_filter_by_a_pipeline_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        InvalidEntryError, match="'letter'; allowed: pipelines of the catalog: letters"
    ):
        catalog_with(LogChannel(name="log", pipelines=("letter",)))


def test_a_value_that_is_not_a_channel_is_refused() -> None:
    with pytest.raises(InvalidEntryError, match="'StepDispatchEntry'; allowed: ChannelEntry"):
        catalog_with(SEND)


def test_two_channels_have_two_names() -> None:
    with pytest.raises(DuplicateKeyError):
        catalog_with(LogChannel(name="log"), LogChannel(name="log"))
