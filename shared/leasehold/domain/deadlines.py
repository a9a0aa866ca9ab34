"""The dispatch deadlines that there can be: how long the queue of an attempt listens to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

#: Cloud Tasks listens to an HTTP target for at least and at most this long.
MIN_DEADLINE: Final = timedelta(seconds=15)
PLATFORM_DEADLINE: Final = timedelta(minutes=30)
#: Where no queue waits for an answer, a heartbeat notices a worker that died.
MAX_DEADLINE: Final = timedelta(days=7)
