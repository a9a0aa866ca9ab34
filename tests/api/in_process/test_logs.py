"""Log lines of handlers name their attempt, in a program whose log is its own."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from leasehold.testing import InProcessEngine
from tests.api.in_process.logging_steps import GATES, PIPELINES, STEPS


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The lines of the program's log handler, in its own format."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(run_id)s %(step)s %(attempt)s | %(message)s"))
    level = logging.root.level
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.INFO)
    yield stream
    logging.root.removeHandler(handler)
    logging.root.setLevel(level)


def test_each_line_names_its_attempt_wherever_the_handler_s_context_is(
    environ: dict[str, str], written: io.StringIO
) -> None:
    with InProcessEngine(STEPS, PIPELINES, GATES, environ=environ, workers=0) as engine:
        handlers, level = list(logging.root.handlers), logging.root.level
        run = engine.run("logs", {}).run_id
        logging.getLogger("tests.shop").info("after it")

    assert written.getvalue().splitlines() == [
        f"{run} says 1 | by the context",
        f"{run} 300 1 | by its own logger, with words",  # its own `extra` goes first
        f"{run} says_later 1 | from a thread of asyncio",
        f"{run} says_later 1 | from a task",
        f"{run} says_later 1 | by a gate",
        f"{run} says_from_threads 1 | a thread, by the context",
        f"{run} says_from_threads 1 | a thread with the handler's context",
        "  0 | a thread of its own",
        "  0 | after it",
    ]
    assert (logging.root.handlers, logging.root.level) == (handlers, level)
