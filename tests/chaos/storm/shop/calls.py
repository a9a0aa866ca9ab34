"""Calls that are paid for: each is a line of the ledger, written when it is made."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

LEDGER: Final = "SHOP_LEDGER"  # the file
SERVER: Final = "SHOP_SERVER"  # which process of a server, of all that there were, pays


def pay(run_id: str, call: str, seconds: float) -> str:
    """Make a call; it is paid for from the first moment on."""
    now = datetime.now(UTC).isoformat()  # noqa: TID251 - a user's own code
    line = f"{now} {os.environ[SERVER]} {run_id} {call}\n"
    file = os.open(Path(os.environ[LEDGER]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    threading.Event().wait(seconds)
    return f"the answer of {call}"
