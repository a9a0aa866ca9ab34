"""The timer of one process: it finds runs whose alarm is due, and moves them on."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Container
from datetime import timedelta
from functools import partial
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.timestamps import ClockStep
from leasehold.domain.worker_note import WorkerKind
from leasehold.errors import LeaseholdError, UnknownRunError
from leasehold.logs.attempt import without_repeats
from leasehold.services.adopt_runs import (
    adopt_all,
    adopt_run,
    parked_runs,
    take_over_gone,
    take_up_dispatched,
)
from leasehold.services.children import open_children
from leasehold.services.due_deliveries import (
    EPOCH,
    take_up_deliveries,
    take_up_deliveries_of,
    wait_from_now,
)
from leasehold.services.engine import Engine
from leasehold.services.purge import runs_that_owe
from leasehold.services.shut_down import stop_cancelled
from leasehold.services.sweep import sweep
from leasehold.services.worker_notes import Presence
from leasehold.worker.sandbox.forking.project_sources import ProjectSources
from leasehold.worker.stopping.holder import host_name, is_gone

_LOG: Final = logging.getLogger("leasehold.in_process")

#: How often runs are looked for whose alarm is due.
TICK_S: Final = 1.0

#: How long one sweep begins to attend to runs: the engine may be closed meanwhile.
_SWEEP_TIME: Final = timedelta(seconds=5)

#: A timer that has not ticked for this time hangs, or has ended.
_MAX_TICK_AGE_S: Final = 60.0

#: How long the start of a server waits for its worker note, which others read.
_NOTE_TIMEOUT_S: Final = 2.0

CHANGED: Final = (
    "the code on disk changed since this server started, and every attempt here still runs the "
    "code of the start; restart the server to use the new one"
)
CHANGED_HERE: Final = (
    "the code on disk changed since this program read it, and what it has imported stays as it "
    "was; restart it to use the new one"
)


#: As often as Cloud Scheduler calls `derive_budgets`.
DERIVE_EVERY_S: Final = 3600.0


class Timer:
    """Looks after runs: those that were started or adopted here, or every one of the store.

    Args:
        engine: returns the parts, as they are then.
        sources: the project's own, as they were read.
        width: how many runs are attended at once.
        closing: set when it is to end.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        sources: ProjectSources,
        width: int,
        closing: threading.Event,
    ) -> None:
        self._engine_now = engine
        self._sources: ProjectSources | None = sources  # None: that they changed was said
        self._width = width
        self._closing = closing
        self._mine: set[str] = set()  # the runs that this engine is to bring to their end
        self._ended: set[str] = set()  # those with announcements that may still be due
        self._every_run = False
        self._tick_s = TICK_S
        self._looked_at = -math.inf
        self._looking = threading.Lock()
        self._is_taking_up = False
        self._ticked_at = time.monotonic()
        self._dispatched_since = self._owed_since = engine().clock.now()
        self._presence = Presence(WorkerKind.IN_PROCESS)
        self._followed: ClockStep | None = None
        self._derive_at = -math.inf

    @property
    def _engine(self) -> Engine:
        return self._engine_now()

    def adopt(self, run_id: str) -> None:
        """Take up a run where another process left it; see `services.adopt_runs.adopt_run`."""
        self._mine.add(run_id)
        manifest = adopt_run(self._engine, run_id, is_gone=_is_gone)
        take_up_deliveries_of(self._engine, run_id)
        if manifest.is_resting:
            for child in open_children(self._engine, manifest):
                self.adopt(child)

    def adopt_all(self) -> int:
        """Take up every live run of the store; return how many that are.

        There is no sweep meanwhile: runs that were due while no process worked are
        continued, and not given up.
        """
        self._is_taking_up = True
        try:
            with self._looking:
                adopted = adopt_all(self._engine, is_gone=_is_gone)
            wait_from_now(self._engine)
            self._owed_since = take_up_deliveries(self._engine, since=EPOCH)
        finally:
            self._is_taking_up = False
        if not self._every_run:
            self._mine.update(adopted, parked_runs(self._engine))
            self._ended.update(runs_that_owe(self._engine, self._engine.clock.now()))
        else:
            self._presence.note(self._engine, patience_s=_NOTE_TIMEOUT_S)
        return len(adopted)

    def look_after_every_run(self, tick_s: float) -> None:
        """Look after every run of the store from now on, each `tick_s` seconds."""
        self._every_run, self._tick_s = True, tick_s
        before, self._presence = self._presence, Presence(WorkerKind.SERVE)
        before.end(self._engine)  # noted already where the start was slow
        self._mine.clear()
        self._ended.clear()

    def note(self, manifest: Manifest, *, is_new: bool) -> None:
        """Hear of a run that was changed here; a child of one that is looked after is, too."""
        is_child = manifest.parent is not None and manifest.parent.run_id in self._mine
        if (is_new or is_child) and not self._every_run:
            self._mine.add(manifest.run_id)
        if not manifest.is_terminal or self._every_run:
            return
        if manifest.announcement is not None:
            self._ended.add(manifest.run_id)
        if not manifest.owes_archive:
            self._mine.discard(manifest.run_id)

    def tick(self) -> None:
        """Look for runs whose alarm is due, until this is to end."""
        warn = without_repeats(_LOG.warning, self._engine.clock.monotonic)
        while not self._closing.wait(self._tick_s):
            try:
                self.look()
            except LeaseholdError as error:
                warn(f"the sweep failed, again in {self._tick_s:g} s: {error}")
            except Exception:  # noqa: BLE001 - nothing else would look for them
                _LOG.exception("the sweep failed, again in %g s", self._tick_s)
            self._presence.note(self._engine)
            self._look_at_code()
            self._ticked_at = time.monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether it has taken up what was there, and ticked lately: a look takes some seconds."""
        return not self._is_taking_up and time.monotonic() - self._ticked_at < _MAX_TICK_AGE_S

    def _look_at_code(self) -> None:
        """Say once that the code on disk is another one: a server mixes nothing of it in."""
        if self._sources is not None and self._sources.has_changed():
            self._sources = None
            _LOG.warning("%s", CHANGED if self._every_run else CHANGED_HERE)

    def end(self) -> None:
        """Note that this process looks after no run any more; the threads have ended."""
        self._presence.end(self._engine)

    def look(self) -> None:
        """Take up what others dispatched of the runs that are looked after, and sweep them."""
        engine, among = self._engine, None if self._every_run else self._mine | self._ended
        now = engine.clock.monotonic()
        if among == set() or now - self._looked_at < self._tick_s:
            return
        self._looked_at = now
        with self._looking:
            self._look(engine, among)

    def _look(self, engine: Engine, among: Container[str] | None) -> None:
        try:
            self._follow_clock(engine)
            self._dispatched_since = take_up_dispatched(
                engine, among=among, since=self._dispatched_since
            )
            self._owed_since = take_up_deliveries(engine, among=among, since=self._owed_since)
            self._forget_told()
            if self._every_run:
                take_over_gone(engine, is_gone=_is_gone)
                stop_cancelled(engine)
                self._derive_budgets(engine)
        finally:  # its index may still be built: the sweep can do without
            sweep(engine, among=among, time=_SWEEP_TIME, width=self._width)

    def _derive_budgets(self, engine: Engine) -> None:
        """Derive the limits of steps, if any are derived, and it is time again.

        Nothing waits for it: a server of metrics may take 20 s for each step.
        """
        now = engine.clock.monotonic()
        if now < self._derive_at:
            return
        self._derive_at = now + DERIVE_EVERY_S
        if engine.derives_budgets:
            engine.threads.errand(partial(_derive, engine, self._closing.is_set), 0.0)

    def _follow_clock(self, engine: Engine) -> None:
        """Take everything up anew where the machine's clock was set: waits and leases follow it."""
        step = engine.process.clock_step()
        if step is None or step == self._followed:
            return
        by = step.by.total_seconds()
        words = (
            f"was set ahead by {by:.0f} s, or it slept"
            if by > 0
            else f"was set back by {-by:.0f} s"
        )
        engine.listeners.log(f"this machine's clock {words}: leases and waits follow it")
        if self._every_run:
            adopt_all(engine, is_gone=_is_gone)
        for run_id in tuple(self._mine):
            with contextlib.suppress(UnknownRunError):  # it was purged
                adopt_run(engine, run_id, is_gone=_is_gone)
        wait_from_now(engine)
        self._dispatched_since += step.by
        self._owed_since = EPOCH
        self._followed = step

    def _forget_told(self) -> None:
        """Stop looking after ended runs that owe no announcement any more."""
        if ended := tuple(self._ended):
            owing = runs_that_owe(self._engine, self._engine.clock.now())
            self._ended.difference_update(run_id for run_id in ended if run_id not in owing)


def _is_gone(holder: str) -> bool:
    return is_gone(holder, host=host_name())


def _derive(engine: Engine, is_over: Callable[[], bool]) -> None:
    from leasehold.services.derive_budgets import derive_and_report  # noqa: PLC0415 - seldom

    try:
        derive_and_report(engine, is_over)
    except Exception:  # noqa: BLE001 - nothing waits for it
        _LOG.exception("the limits of steps were not derived, again in an hour")
