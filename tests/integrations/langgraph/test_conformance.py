"""The saver passes the suite that LangGraph publishes for savers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate

from leasehold.integrations.langgraph import LeaseholdSaver
from leasehold.testing import step_context


class ReadBack(LeaseholdSaver):
    """Answers with what another saver reads back from the records, as that of the next attempt."""

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        return self._next_attempt().get_tuple(config)

    def list(self, *args: Any, **options: Any) -> Iterator[CheckpointTuple]:
        return self._next_attempt().list(*args, **options)

    def _next_attempt(self) -> LeaseholdSaver:
        return LeaseholdSaver(self._ctx, name=self._name)


def test_a_saver_that_reads_all_of_it_back_passes_the_suite() -> None:
    journals = iter(range(100))

    @checkpointer_test(name="LeaseholdSaver")
    async def saver() -> AsyncGenerator[LeaseholdSaver, None]:
        yield ReadBack(ctx, name=f"journal-{next(journals)}")

    with step_context() as ctx:
        report = asyncio.run(validate(saver))

    assert [each for result in report.results.values() for each in result.failures] == []
    assert report.passed_all()
    assert sum(result.tests_passed for result in report.results.values()) >= 78
