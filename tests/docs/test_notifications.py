"""The code on the page about notifications runs unchanged, in an empty folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from leasehold import Registry, WebhookChannel
from leasehold.adapters.clock import SystemClock
from leasehold.domain.event_message import EventMessage
from tests.worlds.deliveries import TIMEOUT_S, delivery, opener
from tests.worlds.processes import run_to_end
from tests.worlds.serving import while_serving

PAGE = (Path(__file__).parents[2] / "docs/notifications.md").read_text()


def block(name: str) -> str:
    (text,) = re.findall(rf"^```python\n# {name}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_channels_of_the_page_are_a_registry(tmp_path: Path) -> None:
    (tmp_path / "channels.py").write_text(block(r"channels\.py"))

    channels = runpy.run_path(str(tmp_path / "channels.py"))["CHANNELS"]

    assert isinstance(channels, Registry)
    assert channels.keys() == ("log", "team", "shop", "mail", "programs")


def test_the_receiver_of_the_page_takes_each_message_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = re.findall(r"^python -c '(.*)'$", PAGE, re.MULTILINE)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(command, {})  # noqa: S102 - it is the page's own
    secret = printed.getvalue().strip()
    monkeypatch.setenv("SHOP_WEBHOOK_SECRET", secret)
    (tmp_path / "receiver.py").write_text(block(r"receiver\.py"))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app = runpy.run_path(str(tmp_path / "receiver.py"))["app"]
        server = make_server("127.0.0.1", 0, app)
        url = f"http://127.0.0.1:{server.server_port}/leasehold"
        entry = WebhookChannel(name="shop", url_variable="URL", secret_variable="SECRET")  # noqa: S106 - a name
        sender = opener({"URL": url, "SECRET": secret}, clock=SystemClock())(entry)
        with while_serving(server):
            for _ in range(2):
                sender.send(delivery(), timeout=TIMEOUT_S)
        unsigned = app.test_client().post("/leasehold", data=b"{}")

    assert printed.getvalue() == f"{delivery().summary}\n"
    assert unsigned.status_code == 401


def test_the_message_of_the_page_is_the_one_that_is_sent() -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    summary = json.loads(text)["data"]["summary"]
    owed = delivery(channel="shop", occurrence="7", summary=summary)

    assert json.loads(text) == EventMessage(owed).content("")


def test_the_own_channel_of_the_page_passes_its_test(tmp_path: Path) -> None:
    for name in ("pager.py", "test_pager.py"):
        (tmp_path / name).write_text(block(re.escape(name)))

    done = run_to_end(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
