"""Runs that wait cost nothing: a sweep is given those alone whose time is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasehold.domain.lifecycle.start import shard_of
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import Document, StoredDocument, Write, replace
from leasehold.testing import FrozenClock, InProcessEngine

_WAITING = 1000  # several pages of any query
_DUE = 7


def _of_another_id(run: Manifest, number: int, until: datetime) -> StoredDocument:
    run_id = f"r-waiting-{number}"
    wait = run.position.wait
    assert wait is not None
    position = replace(run.position, wait=replace(wait, until=until))
    return StoredDocument(
        replace(
            run, run_id=run_id, shard=shard_of(run_id), alarm_at=until, position=position, traced=0
        )
    )


def test_a_sweep_reads_only_the_waits_whose_time_is_over(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    given = {"wait_s": 86400, "otherwise": "continue"}
    run_id = engine.start("approved", given).run_id
    engine.run_until_idle()
    run, soon = engine.show(run_id), clock.now() + timedelta(minutes=1)
    documents = {}
    for number in range(_WAITING):
        until = soon if number < _DUE else soon + timedelta(days=60, seconds=number)
        documents[run_ref(f"r-waiting-{number}")] = _of_another_id(run, number, until)

    def create(_: Document | None, __: datetime) -> Write[None]:
        return Write(None, creates=documents)

    engine.engine.documents.transact(run_ref("nobody"), create)
    idle = engine.sweep()
    clock.advance(90)
    swept = engine.sweep()
    again = engine.sweep()

    assert (idle.documents_read, swept.documents_read, again.documents_read) == (0, _DUE, 0)
    assert engine.show("r-waiting-0").status == "PENDING"
    assert engine.show(f"r-waiting-{_WAITING - 1}").updated_at == run.updated_at
