"""Detects at once that a worker died: its connections drop, and the process of its lease is gone.

Without it the step would wait until its lease expires.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import pydantic_core

from leasehold.devserver.cloud_tasks import HttpTask
from leasehold.errors import UnknownRunError
from leasehold.services.adopt_runs import expire_if_gone
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run

#: The kernel closes the connections of a process shortly before the process is gone, so it is
#: looked at again after each of these waits. A process that is there after all of them is alive.
_WAITS_S: Final = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.4)


class CrashDetector:
    """Ends the leases of workers that died.

    Args:
        engine: the parts.
        is_gone: whether the process of a holder is known to be gone.
        kill_orphans: kills the orphans of the dead worker of this name; called before its lease is
            ended, so that the next attempt does not run beside them.
        report: called with a line for people on what was done, and what could not be.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        is_gone: Callable[[str], bool],
        kill_orphans: Callable[[str], object],
        report: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._is_gone = is_gone
        self._kill_orphans = kill_orphans
        self._report = report
        self._stopping = threading.Event()
        self._checks: set[threading.Thread] = set()

    def on_dropped(self, task: HttpTask) -> None:
        """Check the worker of a task whose connection dropped; returns at once."""
        run_id = _run_id_of(task)
        if run_id is None or self._stopping.is_set():
            return
        check = threading.Thread(target=self._check, args=(run_id,), name="crash", daemon=True)
        self._checks.add(check)
        try:
            check.start()
        except RuntimeError:  # no thread: then its lease expires, and the sweep comes
            self._checks.discard(check)

    def stop(self) -> None:
        """Check no more; the leases of workers that die from now on end at the next start."""
        self._stopping.set()
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until all checks are over."""
        for check in list(self._checks):
            check.join()

    def _check(self, run_id: str) -> None:
        try:
            if any(self._end_lease_if_gone(run_id, wait) for wait in _WAITS_S):
                self._report(f"the worker of run {run_id} died; its lease is ended")
        except UnknownRunError:
            return  # the task is not of this engine
        except Exception as error:  # noqa: BLE001 - then its lease expires, and the sweep comes
            self._report(f"the worker of run {run_id} may have died: {error}")
        finally:
            self._checks.discard(threading.current_thread())

    def _end_lease_if_gone(self, run_id: str, wait: float) -> bool:
        """Look once after a wait; return whether the worker is gone, and its lease ended."""
        if self._stopping.wait(wait):
            return False
        lease = get_run(self._engine, run_id).position.lease
        if lease is None or not self._is_gone(lease.holder):
            return False
        self._kill_orphans(lease.holder)
        return expire_if_gone(self._engine, run_id, is_gone=self._is_gone)


def _run_id_of(task: HttpTask) -> str | None:
    """Return the run that a task is for; None: it is not a task of an engine."""
    try:
        run_id = pydantic_core.from_json(task.body)["runId"]
    except (ValueError, KeyError, TypeError):
        return None
    return run_id if isinstance(run_id, str) else None
