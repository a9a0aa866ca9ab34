"""The real function under the real framework, which starts each worker again that is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leasehold.devserver.function_processes import free_port

_ROOT: Final = Path(__file__).parents[2]
_SOURCE: Final = _ROOT / "functions/deliver_notification.py"
_PATIENCE_S: Final = 30.0


@contextmanager
def function_process(environ: Mapping[str, str]) -> Iterator[str]:
    """Serve the function with these variables; give its address."""
    port = str(free_port())
    words = ["--target", "deliver_notification", "--signature-type", "cloudevent"]
    command = [sys.executable, "-m", "functions_framework", *words, "--source", str(_SOURCE)]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", port],
        env=dict(environ),
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        try:
            server.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
