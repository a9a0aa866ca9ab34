"""The process of a function looks for garbage while it serves, and not while it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.worlds.ports import own_port
from tests.worlds.waiting import until

SOURCE = """
import gc

was_looked_for = gc.get_threshold()[0] > 0


def look(request):
    return {"importing": was_looked_for, "serving": gc.get_threshold()[0] > 0}
"""


def test_garbage_is_looked_for_while_a_function_serves_and_not_while_it_is_imported(
    tmp_path: Path,
) -> None:
    (tmp_path / "look.py").write_text(SOURCE)
    url = f"http://127.0.0.1:{(port := own_port())}"
    words = [
        "--host",
        "127.0.0.1",
        "--target",
        "look",
        "--source",
        str(tmp_path / "look.py"),
        "--port",
        str(port),
    ]
    program = [sys.executable, "-m", "leasehold.devserver.server_main", str(os.getpid())]

    server = subprocess.Popen([*program, *words], cwd=tmp_path)
    try:
        said = json.loads(until(lambda: answer(url)))
    finally:
        server.kill()
        server.wait()

    assert said == {"importing": False, "serving": True}


def answer(url: str) -> bytes:
    """Return the answer; empty: it does not listen yet."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - of this test
            return bytes(answer.read())
    except OSError:
        return b""
