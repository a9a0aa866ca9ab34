"""Slack gets what its official client makes, and from no server that only claims to be Slack."""

from __future__ import annotations

import json
import logging

import pytest
import trustme

from leasehold import SlackChannel
from leasehold.domain.announcement import AnnouncedEvent, Priority
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    LeaseholdError,
)
from tests.api.channels.web_server import WebServer, answering, breaking_off, serving
from tests.worlds.deliveries import SHORT_S, TIMEOUT_S, delivery, opener

TEAM = SlackChannel(name="team", url_variable="TEAM_URL")
RUN = "https://shop.example/runs/letters-1"
LINKS = (("", "run"), ("/why", "why"), ("/trace", "trace"))
PATH = "/services/T000/B000/planted"


def refused_by(server: WebServer, timeout: float = TIMEOUT_S) -> LeaseholdError:
    environ = {"TEAM_URL": f"http://127.0.0.1:{server.port}{PATH}"}
    with pytest.raises(LeaseholdError) as refused:
        opener(environ)(TEAM).send(delivery(), timeout=timeout)
    return refused.value


def test_slack_itself_is_called_over_tls(trusted: trustme.CA) -> None:
    with serving(trusted.issue_cert("hooks.slack.com")) as slack:
        environ = {"TEAM_URL": f"https://hooks.slack.com:{slack.port}{PATH}"}
        sender = opener(environ, resolve=lambda *_: ["127.0.0.1"])(TEAM)
        sender.send(delivery(), timeout=TIMEOUT_S)

    (request,) = slack.requests
    body = json.loads(request.body)
    assert request.path == PATH
    assert request.headers["Content-type"] == "application/json;charset=utf-8"
    assert body["text"] == "Run letters-1 of pipeline letters is blocked at step send."
    said, linked = (block["text"] for block in body["blocks"])
    assert said["text"].splitlines() == [
        "\N{LARGE RED CIRCLE} Run letters-1 of pipeline letters is blocked at step send.",
        "The letter names no recipient.",
    ]
    assert linked["text"] == " · ".join(f"<{RUN}{path}|{name}>" for path, name in LINKS)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("<!channel> & <https://evil.example|click>",) * 2,
        ("<@U123> `code` *bold* _it_ ~gone~ :tada: ```more```",) * 2,
        ("first\n> quoted\n• listed", "first > quoted • listed"),
        ("first\r\n*Run x is completed.*\u202e", "first *Run x is completed.*\\u202e"),
    ],
)
def test_no_text_of_a_run_is_markup_there(server: WebServer, hostile: str, shown: str) -> None:
    """No link with another text, no mention of the whole channel, and no line of ours."""
    told = delivery(
        summary=hostile,
        detail=hostile,
        event=AnnouncedEvent.RUN_COMPLETED,
        priority=Priority.NORMAL,
    )
    environ = {"TEAM_URL": f"http://127.0.0.1:{server.port}{PATH}"}

    opener(environ)(TEAM).send(told, timeout=TIMEOUT_S)

    body = json.loads(server.requests[0].body)
    said, linked = (block["text"] for block in body["blocks"])
    escaped = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert (body["text"], body["mrkdwn"]) == (escaped, False)
    assert said == {"type": "plain_text", "text": f"{escaped}\n{escaped}", "emoji": False}
    assert linked["text"] == " · ".join(f"<{RUN}{path}|{name}>" for path, name in LINKS)


def test_the_longest_text_fits_into_a_block(server: WebServer) -> None:
    """Slack takes 3,000 characters; a refused one would never be seen."""
    environ = {"TEAM_URL": f"http://127.0.0.1:{server.port}{PATH}"}

    opener(environ)(TEAM).send(delivery(summary="&" * 300, detail="<" * 500), timeout=TIMEOUT_S)

    text = json.loads(server.requests[0].body)["blocks"][0]["text"]["text"]
    assert len(text) < 3000
    assert text.splitlines()[0] == f"\N{LARGE RED CIRCLE} {'&amp;' * 240}"
    assert text.splitlines()[1] == "&lt;" * 300


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.example/services/T/B/X",
        "https://hooks.slack.com.evil.example/services/T/B/X",
        "https://slack.com/services/T/B/X",
        "http://hooks.slack.com/services/T/B/X",
    ],
)
def test_no_other_host_plays_slack(url: str) -> None:
    with pytest.raises(ChannelRefusedError) as refused:
        opener({"TEAM_URL": url}, allow_local=False)(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert "/services" not in refused.value.message


def test_its_name_leads_nowhere_inside_either() -> None:
    environ = {"TEAM_URL": f"https://hooks.slack.com{PATH}"}
    sender = opener(environ, allow_local=False, resolve=lambda *_: ["10.0.0.1"])(TEAM)

    with pytest.raises(ChannelRefusedError, match=r"hooks\.slack\.com leads to 10\.0\.0\.1"):
        sender.send(delivery(), timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("status", "word", "kind"),
    [
        (400, "invalid_payload", ChannelRefusedError),
        (400, "invalid_token", ChannelRefusedError),
        (403, "action_prohibited", ChannelRefusedError),
        (404, "no_service", ChannelRefusedError),
        (410, "channel_is_archived", ChannelRefusedError),
        (302, "", ChannelUnavailableError),
        (400, "something_else", ChannelUnavailableError),
        (500, "rollup_error", ChannelUnavailableError),
        (429, "rate_limited", ChannelUnavailableError),
        (504, "", ChannelUnansweredError),
    ],
)
def test_its_own_words_tell_whether_another_try_can_help(
    server: WebServer, status: int, word: str, kind: type[LeaseholdError]
) -> None:
    server.answer = answering(status, word, Retry_After="7")

    error = refused_by(server)

    assert type(error) is kind
    assert len(server.requests) == 1  # the client makes no try of its own
    if isinstance(error, ChannelUnavailableError):
        assert error.details["retry_after_s"] == 7


def test_without_an_answer_it_is_unknown_whether_slack_took_it(server: WebServer) -> None:
    server.answer = breaking_off

    assert type(refused_by(server)) is ChannelUnansweredError


def test_an_answer_that_never_ends_blocks_nothing(server: WebServer) -> None:
    server.answer = server.dripping

    for timeout in SHORT_S:
        error = refused_by(server, timeout)
        if server.requests:
            break

    assert type(error) is ChannelUnansweredError


def test_the_client_logs_no_address(server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.answer = breaking_off

    error = refused_by(server)

    assert "planted" not in f"{error!r} {error.details} {caplog.text}"
