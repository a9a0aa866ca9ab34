"""The HTTP request of a delivery, over a connection of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import urllib3

from leasehold.devserver.cloud_tasks.headers import delivery_headers
from leasehold.devserver.cloud_tasks.tasks import Answer, Attempt, HttpTask

_log = logging.getLogger(__name__)

#: The worker is not there, or ended while it was listened to: other than one that is only slow.
_DROPPED: Final = (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError)

#: A wait with more digits, in seconds, is none.
_MAX_DIGITS: Final = 9

#: A kept connection belongs to one process: one that is frozen would swallow the delivery until its
#: deadline, while others wait for work.
_NOT_KEPT: Final = {"Connection": "close"}


class Caller:
    """Makes deliveries, from many threads at once.

    Args:
        connections: how many there may be to one host.

    Attributes:
        dropped: told of the task of each delivery whose connection was refused, or dropped before
            its answer was whole. It neither waits nor raises.
    """

    def __init__(self, connections: int) -> None:
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False)
        self.dropped: Callable[[HttpTask], object] = lambda _: None

    def call(self, attempt: Attempt) -> Answer:
        """Make the delivery and return its answer.

        After the task's deadline it stops listening; the worker may run on.
        """
        try:
            return self._ask(attempt)
        except _DROPPED:
            self.dropped(attempt.task)
            return Answer(None)
        except (urllib3.exceptions.HTTPError, OSError):
            return Answer(None)
        except Exception:  # noqa: BLE001 - such as a header that cannot be sent; the thread goes on
            _log.exception("Task %s cannot be delivered", attempt.task.name)
            return Answer(None)

    def close(self) -> None:
        """Close the connections that are idle, and those that are used when they are not."""
        for host in self._pool.pools.keys():  # noqa: SIM118 - it takes no iteration by itself
            if pool := self._pool.pools.get(host):
                pool.close()
        self._pool.clear()  # alone, it would leave the closing to the garbage collector

    def _ask(self, attempt: Attempt) -> Answer:
        task = attempt.task
        seconds = task.deadline.total_seconds()
        over_at = time.monotonic() + seconds
        response = self._pool.request(
            task.method,
            task.url,
            body=task.body or None,
            headers=delivery_headers(attempt) | _NOT_KEPT,
            timeout=urllib3.Timeout(total=seconds),
            redirect=False,
            preload_content=False,
        )
        heard = _read_to_end(response, over_at)
        asked = response.headers.get("Retry-After", "")
        seconds = int(asked) if asked.isdecimal() and len(asked) <= _MAX_DIGITS else 0
        retry_after = timedelta(seconds=seconds)
        return Answer(response.status if heard else None, retry_after)


def _read_to_end(response: urllib3.BaseHTTPResponse, over_at: float) -> bool:
    """Read the body, which nobody needs: an answer counts once it is whole; False: too slow."""
    while response.read1(65536):
        if time.monotonic() > over_at:
            response.close()
            return False
    response.release_conn()
    return True
