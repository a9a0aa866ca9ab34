"""Notices at once that a worker died: its connections drop, and the process of its lease is gone.

Without it the step would wait until its lease runs out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Final

from leasehold.devserver.cloud_tasks import HttpTask
from leasehold.errors import UnknownRunError
from leasehold.services.adopt_runs import expire_if_gone
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run

#: The kernel closes the connections of a process shortly before the process is gone, so it is
#: looked at again after these seconds. Whoever is there after all of them lives.
_LOOKS_S: Final = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.4)


class CrashDetector:
    """Ends the leases of workers that died.

    Args:
        engine: the parts.
        is_gone: whether the holder of a lease is known to work no more.
        clear: kills what a dead worker, whose name it is given, left behind; called before its
            lease is ended, so that the next attempt has the place for itself.
        tell: told in a line what was done, and what could not be.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        is_gone: Callable[[str], bool],
        clear: Callable[[str], object],
        tell: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._is_gone = is_gone
        self._clear = clear
        self._tell = tell
        self._stopping = threading.Event()
        self._looking: set[threading.Thread] = set()

    def notice(self, task: HttpTask) -> None:
        """Take note that the connection of a delivery dropped; returns at once."""
        run_id = _run_of(task)
        if run_id is None or self._stopping.is_set():
            return
        thread = threading.Thread(target=self._look, args=(run_id,), name="notice", daemon=True)
        self._looking.add(thread)
        thread.start()

    def stop(self) -> None:
        """Look no more; whoever dies from now on is found at the next start."""
        self._stopping.set()
        self.wait()

    def wait(self) -> None:
        """Wait until everything that was noticed is dealt with."""
        for thread in list(self._looking):
            thread.join()

    def _look(self, run_id: str) -> None:
        try:
            if any(self._ended(run_id, wait) for wait in _LOOKS_S):
                self._tell(f"the worker of run {run_id} died; its lease is ended")
        except UnknownRunError:
            return  # somebody else's task
        except Exception as error:  # noqa: BLE001 - its lease runs out then, and the sweep comes
            self._tell(f"the worker of run {run_id} may have died: {error}")
        finally:
            self._looking.discard(threading.current_thread())

    def _ended(self, run_id: str, wait: float) -> bool:
        """Look once after a wait; return whether the worker is gone, and its lease ended."""
        if self._stopping.wait(wait):
            return False
        lease = get_run(self._engine, run_id).lease
        if lease is None or not self._is_gone(lease.holder):
            return False
        self._clear(lease.holder)
        return expire_if_gone(self._engine, run_id, is_gone=self._is_gone)


def _run_of(task: HttpTask) -> str | None:
    """Return the run that a task is about; None: it is no task of an engine."""
    try:
        run_id = json.loads(task.body)["runId"]
    except (ValueError, KeyError, TypeError):
        return None
    return run_id if isinstance(run_id, str) else None
