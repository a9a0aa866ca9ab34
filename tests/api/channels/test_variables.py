"""Secrets of channels come from variables and files, and are shown nowhere."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from http.client import BadStatusLine
from pathlib import Path
from typing import Any

import pytest

from leasehold import LogChannel, SlackChannel
from leasehold.adapters.channels.bounded_call import words_of
from leasehold.adapters.channels.variables import Variables
from leasehold.domain.signal_link import PublicUrl
from leasehold.errors import ChannelRefusedError, ChannelUnavailableError
from leasehold.registry.channels import ChannelEntry, is_set
from tests.worlds.deliveries import NOW, TIMEOUT_S, delivery, opener

PLANTED = "planted-7f3a"


def read(**environ: str) -> str:
    return Variables(environ, "team").read("X")


def test_a_variable_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("of the file\n")
    path = str(tmp_path / "x")

    assert read(X=" plain\n", X_FILE=path) == "plain"
    assert read(X="", X_FILE=path) == "of the file"


def test_each_use_reads_it_anew(tmp_path: Path) -> None:
    """A secret that is mounted is changed without a restart."""
    file = tmp_path / "x"
    variables = Variables({"X_FILE": str(file)}, "team")
    file.write_text("old")
    assert variables.read("X") == "old"
    file.write_text("new")

    assert variables.read("X") == "new"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff", "is not UTF-8 text"),
        (b"x" * 16_385, "is longer than 16384 bytes"),
    ],
)
def test_a_file_that_has_no_secret_is_said_by_its_variable(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / PLANTED
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ChannelUnavailableError) as missing:
        read(X_FILE=str(file))

    assert f"the file that X_FILE names {problem}" in missing.value.message
    assert PLANTED not in f"{missing.value!r} {missing.value.details}"


@pytest.mark.parametrize("path", [f"{PLANTED}\0", "/", "/dev/zero", "x" * 5000])
def test_no_path_is_too_odd(path: str) -> None:
    with pytest.raises(ChannelUnavailableError, match="the file that X_FILE names"):
        read(X_FILE=path)


def test_a_pipe_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ChannelUnavailableError, match="the file that X_FILE names is no plain file"
    ):
        read(X_FILE=str(tmp_path / "pipe"))


def test_one_that_is_not_set_says_what_to_set() -> None:
    with pytest.raises(ChannelUnavailableError) as missing:
        read()

    assert missing.value.message == (
        "Channel team cannot take the announcement now: X is not set; "
        "set it, or X_FILE to the path of a file that holds it."
    )
    assert not is_set({}, "X")
    assert is_set({"X_FILE": "x"}, "X")


def test_no_object_of_a_channel_shows_its_environment() -> None:
    environ = {"TEAM_URL": f"https://hooks.slack.com/services/{PLANTED}"}
    entry = SlackChannel(name="team", url_variable="TEAM_URL")
    opened = opener(environ, resolve=lambda *_: [PLANTED])
    sender: Any = opened(entry)

    parts = [opened, sender, entry, *vars(sender).values()]

    assert PLANTED not in repr(parts)
    assert PLANTED not in str(pickle.dumps(entry))


@pytest.mark.parametrize(
    "address",
    [
        f"https://hooks.slack.com/services/{PLANTED}",
        f"https://127.0.0.1/{PLANTED}",
        f"https://{PLANTED}@hooks.slack.com/",
        f"https://hooks.slack.com/{PLANTED} ",
        f"http://hooks.slack.com/{PLANTED}",
        f"{PLANTED}://x",
        PLANTED,
    ],
)
def test_no_error_shows_an_address(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    entry = SlackChannel(name="team", url_variable="TEAM_URL")
    sender = opener({"TEAM_URL": address}, allow_local=False, resolve=lambda *_: ["127.0.0.1"])

    with pytest.raises(ChannelRefusedError) as refused:
        sender(entry).send(delivery(), timeout=TIMEOUT_S)

    error = refused.value
    causes = f"{error.__cause__!r} {error.__context__!r}"
    assert PLANTED not in f"{error!r} {error.details} {causes} {caplog.text}"


def test_no_words_of_an_error_of_a_library_are_shown() -> None:
    """They may repeat what was sent, or what a server answered."""
    assert words_of(BadStatusLine(PLANTED)) == "the exchange ended with BadStatusLine"
    assert words_of(OSError(PLANTED)) == "the exchange ended with OSError"


def test_a_sender_that_is_open_takes_a_secret_that_was_changed_since() -> None:
    environ = {"TEAM_URL": f"http://hooks.slack.com/{PLANTED}"}
    sender = opener(environ, allow_local=False)(SlackChannel(name="team", url_variable="TEAM_URL"))
    with pytest.raises(ChannelRefusedError, match="does not begin with https"):
        sender.send(delivery(), timeout=TIMEOUT_S)

    environ["TEAM_URL"] = f"https://other.example/{PLANTED}"

    with pytest.raises(ChannelRefusedError, match=r"does not begin with https://hooks.slack.com"):
        sender.send(delivery(), timeout=TIMEOUT_S)


def test_a_log_has_no_link_by_which_its_readers_answer() -> None:
    """The signature of a link stands for a sign-in."""
    logged: list[Mapping[str, Any]] = []
    url = PublicUrl("https://shop.example", [PLANTED])
    waiting = delivery(signal="approval")

    opener(logged=logged, base_url=url)(LogChannel(name="log")).send(waiting, timeout=TIMEOUT_S)

    assert set(logged[0]["links"]) == {"run", "why", "trace"}


def test_a_log_says_what_people_are_told() -> None:
    logged: list[Mapping[str, Any]] = []

    opener(logged=logged)(LogChannel(name="log")).send(delivery(), timeout=TIMEOUT_S)

    (facts,) = logged
    assert (facts["severity"], facts["event"]) == ("WARNING", "RUN_BLOCKED")
    assert facts["message"] == "Run letters-1 of pipeline letters is blocked at step send."
    assert facts["links"]["run"] == "https://shop.example/runs/letters-1"
    assert facts["at"] == NOW.isoformat()


def test_a_class_of_channels_that_nothing_sends_to_says_so() -> None:
    with pytest.raises(ChannelUnavailableError, match="nothing sends to channels of class Channel"):
        opener()(ChannelEntry(name="odd"))


def test_a_sender_is_opened_once() -> None:
    """Its connections are its own."""
    opened, entry = opener(), LogChannel(name="log")

    assert opened(entry) is opened(entry)
    assert os.environ.get("TEAM_URL") is None
