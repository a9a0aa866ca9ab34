"""Where a checkpoint says that the work is: what every store can keep, and a person can read."""

from __future__ import annotations

import pytest

from leasehold.testing import InProcessEngine


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ((1, "p" * 129), "phase"),
        ((1, "two\nlines"), "phase"),
        ((1, "\0"), "phase"),
        ((1, "\udce9"), "phase"),
        ((1, 7), "phase"),
        ((1, b"draft"), "phase"),
        ((1, None), "phase"),
        ((True, ""), "iteration_count"),
        ((-1, ""), "iteration_count"),
        ((2**63, ""), "iteration_count"),
        ((2**70, ""), "iteration_count"),
        ((1.0, ""), "iteration_count"),
        (("1", ""), "iteration_count"),
        ((None, ""), "iteration_count"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_a_place_that_cannot_be_kept_is_refused_and_nothing_is_stored(
    engine: InProcessEngine, place: tuple[object, object], field: str
) -> None:
    """A store that refused it would be asked until the lease is over."""
    run = engine.run("keeps_at", {"place": ascii(place)})

    assert run.error is not None
    assert (run.error.type, run.error.code) == ("InvalidRequestError", "invalid_request")
    assert run.error.message.startswith(f"{field} is ")
    assert run.position.checkpoint is None
    assert list(engine.engine.artifacts.list(f"runs/{run.run_id}")) == []


@pytest.mark.parametrize("place", [(0, ""), (2**63 - 1, "p" * 128), (1, "Entwürfe, 2. Teil")])
def test_a_place_at_the_limit_is_kept(engine: InProcessEngine, place: tuple[int, str]) -> None:
    run = engine.run("keeps_at", {"place": ascii(place)})

    assert run.error is not None
    assert run.error.type == "KeptError"
    assert run.position.checkpoint is not None
    assert (run.position.checkpoint.iteration_count, run.position.checkpoint.phase) == place
    assert "/checkpoints/keep_at-1/" in str(run.position.checkpoint.ref)
