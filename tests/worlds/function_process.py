"""The real function under the real framework, which starts each worker again that is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.worlds.ports import own_port

_ROOT: Final = Path(__file__).parents[2]
_PATIENCE_S: Final = 30.0


@contextmanager
def function_process(
    environ: Mapping[str, str], function: str = "deliver_notification", port: int | None = None
) -> Iterator[str]:
    """Serve a function with these variables, at this port or any; give its address."""
    port = port or own_port()
    source = _ROOT / "shared/leasehold/functions" / f"{function}.py"
    words = ["--target", function, "--source", str(source)]
    command = [sys.executable, "-m", "functions_framework", *words]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
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
