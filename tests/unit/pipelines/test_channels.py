"""The report is announced to the channels that the environment names."""

from __future__ import annotations

import pytest

from leasehold import EmailChannel, TopicChannel
from leasehold.errors import LeaseholdError
from pipelines.review.channels import channels_of

MAIL = {"REVIEW_EMAIL_FROM": "review@example.com", "REVIEW_EMAIL_TO": "ada@example.com, b@x.org"}
TOPIC = {"REVIEW_TOPIC": "projects/p/topics/reviews"}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ("log",)),
        ({"REVIEW_CHANNELS": "  "}, ("log",)),
        ({"REVIEW_CHANNELS": "slack"}, ("slack",)),
        ({"REVIEW_CHANNELS": "log, webhook,log"}, ("log", "webhook")),
        ({"REVIEW_CHANNELS": "email,topic"} | MAIL | TOPIC, ("email", "topic")),
    ],
)
def test_the_environment_names_the_channels(given: dict[str, str], names: tuple[str, ...]) -> None:
    assert channels_of(given).keys() == names


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"REVIEW_CHANNELS": "slak"}, "allowed: log, slack, webhook, email, topic, or several"),
        ({"REVIEW_CHANNELS": "log,,slack"}, "REVIEW_CHANNELS is 'log,,slack'"),
        ({"REVIEW_CHANNELS": "email"}, "REVIEW_EMAIL_TO is not set, and REVIEW_CHANNELS names"),
        ({"REVIEW_CHANNELS": "topic"}, "set it to projects/PROJECT/topics/TOPIC"),
        ({"REVIEW_CHANNELS": "topic", "REVIEW_TOPIC": "reviews"}, "allowed: projects/PROJECT"),
        ({"REVIEW_CHANNELS": "email"} | MAIL | {"REVIEW_EMAIL_TO": "ada"}, "recipients of 'email'"),
    ],
)
def test_what_cannot_be_a_channel_is_refused_in_one_line(given: dict[str, str], says: str) -> None:
    with pytest.raises(LeaseholdError) as refused:
        channels_of(given)

    assert says in refused.value.message


def test_a_mail_server_is_signed_in_to_only_where_a_user_is_set() -> None:
    without = channels_of({"REVIEW_CHANNELS": "email"} | MAIL)["email"]
    with_user = channels_of({"REVIEW_CHANNELS": "email", "SMTP_USER_FILE": "/run/user"} | MAIL)
    signing_in = with_user["email"]

    assert isinstance(without, EmailChannel)
    assert (without.user_variable, without.password_variable) == (None, None)
    assert isinstance(signing_in, EmailChannel)
    assert signing_in.user_variable == "SMTP_USER"
    assert without.recipients == ("ada@example.com", "b@x.org")


def test_a_topic_is_the_one_that_is_named() -> None:
    channel = channels_of({"REVIEW_CHANNELS": "topic"} | TOPIC)["topic"]

    assert isinstance(channel, TopicChannel)
    assert channel.topic == TOPIC["REVIEW_TOPIC"]
