"""An address with a password in it: refused, as there is no sign-in, and never shown or kept."""

from __future__ import annotations

import json

import pytest

from leasehold import Client
from leasehold.errors import InvalidRequestError, ServerUnreachableError, SettingError
from tests.worlds.shell import Shell

SECRET = "5ecret9"  # noqa: S105 - that is it
ADDRESSES = (
    f"http://user:{SECRET}@127.0.0.1:1",
    f"https://{SECRET}@host",
    f"http://user:{SECRET}@host/?q",
    f"http://user:pa/{SECRET}@host",
    f"http://user:p@{SECRET}@host",
    f"postgres://user:{SECRET}@host/runs",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_error_shows_the_password_of_an_address(address: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"\[redacted\]@") as refused:
        Client(address)

    assert SECRET not in f"{refused.value!r} {refused.value.details}"


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_command_shows_it(shell: Shell, address: str) -> None:
    for words in (["runs", "--url", address], ["runs", "--url", address, "--json"]):
        done = shell.run(*words)
        assert done.returncode == 2
        assert "redacted" in done.stderr + done.stdout
        assert SECRET not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://u:p@h/x", "amqp://[redacted]@h/x"),
        ("see http://h:80/@scope and a@b", "see http://h:80/@scope and a@b"),
        ("a://u:p@h, b://u@h", "a://[redacted]@h, b://[redacted]@h"),
        ("user@host: no", "user@host: no"),
    ],
)
def test_an_error_keeps_the_rest_of_what_it_says(text: str, shown: str) -> None:
    setting = SettingError(name="LEASEHOLD_TASKS", value=text, allowed="in-process")
    away = ServerUnreachableError(url="http://h", problem=OSError(text), sent=False)

    assert setting.details["value"] == shown
    assert shown in setting.message
    assert shown in away.message
    json.dumps(setting.details)
