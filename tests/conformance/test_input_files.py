"""The files that a run is started with, on each store; a run that is not begun leaves none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from leasehold.domain.artifact_name import files_folder
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.errors import (
    AlreadyRecreatedError,
    IdempotencyKeyReusedError,
    InvalidRequestError,
    LeaseholdError,
    StateChangedError,
    StoreUnavailableError,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.services.engine import Engine, find_run
from leasehold.services.explain_run import explain_run
from leasehold.services.operate import OperationRequest, apply, operate, preview
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.wrapped import Wrapped

pytestmark = pytest.mark.one_store

FILES = {"a/one.txt": b"one", "two.txt": b"two"}
GIVEN = {"n": 1}
LARGE = {"n": 1, "text": "x" * 40_000}
RECREATE = OperationRequest(Operation.RECREATE, "ann")


@pytest.fixture
def engine(engine: Engine, artifacts: Artifacts) -> Engine:
    return replace(engine, artifacts=artifacts)


@pytest.fixture
def names(artifacts: Artifacts) -> Callable[[], set[str]]:
    """Return what is stored since the test began: the store is shared."""
    before = {*artifacts.list("")}
    return lambda: {*artifacts.list("")} - before


def begun(engine: Engine, key: str, files: dict[str, bytes] = FILES) -> Manifest:
    return start_run(engine, StartRequest("three", GIVEN, key, files=files)).manifest


def ended(engine: Engine, key: str) -> Manifest:
    run = begun(engine, key)
    operate(engine, run.run_id, OperationRequest(Operation.CANCEL, "ann"))
    return find_run(engine, run.run_id).manifest


def files_of(engine: Engine, run: Manifest) -> dict[str, bytes]:
    folder = f"{files_folder(run)}/"
    names = engine.artifacts.list(files_folder(run))
    return {name.removeprefix(folder): engine.artifacts.get(name) for name in names}


@pytest.mark.each_store
def test_a_run_has_its_files_before_its_first_attempt(engine: Engine, unique: str) -> None:
    run, again = begun(engine, unique), begun(engine, unique)
    with pytest.raises(IdempotencyKeyReusedError, match="set of files"):
        begun(engine, unique, {"two.txt": b"other"})

    stored = find_run(engine, run.run_id).manifest
    assert (again.run_id, stored.status) == (run.run_id, "PENDING")
    assert [file.name for file in stored.input_files] == [*FILES]
    assert files_of(engine, stored) == FILES


@pytest.mark.each_store
def test_a_recreated_run_has_the_files_of_the_one_that_it_is_made_of(
    engine: Engine, unique: str
) -> None:
    old = ended(engine, unique)

    created = operate(engine, old.run_id, RECREATE).created

    assert created is not None
    assert find_run(engine, created.run_id).manifest.input_files == old.input_files
    assert files_of(engine, created) == FILES


class Away(Wrapped[Artifacts]):
    """Artifacts that take so many files, and are away for the next."""

    def __init__(self, artifacts: Artifacts, takes: int) -> None:
        super().__init__(artifacts)
        self._takes = takes

    def put(self, name: str, data: bytes) -> str:
        if not self._takes:
            raise StoreUnavailableError(store="artifacts", problem="it is away")
        self._takes -= 1
        return self.inner.put(name, data)


def full(engine: Engine) -> Engine:
    artifacts: Any = Away(engine.artifacts, 1)
    return replace(engine, artifacts=artifacts)


def test_a_start_whose_files_are_not_all_stored_leaves_none(
    engine: Engine, unique: str, names: Callable[[], set[str]]
) -> None:
    with pytest.raises(StoreUnavailableError):
        begun(full(engine), unique)
    assert names() == set()

    assert files_of(engine, begun(engine, unique)) == FILES


def test_to_look_at_what_would_become_of_a_run_stores_nothing(
    engine: Engine, unique: str, names: Callable[[], set[str]]
) -> None:
    """`why` looks each time it is asked, and so does a batch with --dry-run."""
    old = ended(engine, unique)
    before = names()

    explain_run(engine, old.run_id, is_gone=lambda _: False)
    preview(engine, old, RECREATE)
    preview(engine, old, replace(RECREATE, input=LARGE))

    assert names() == before


@pytest.mark.parametrize("given", [{}, {"input": LARGE}], ids=["as before", "a large input"])
@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(RECREATE, from_step="nowhere"), InvalidRequestError),
        (replace(RECREATE, generation=99), StateChangedError),
    ],
    ids=["no such step", "another generation"],
)
def test_a_recreate_that_is_refused_stores_nothing(
    engine: Engine,
    unique: str,
    names: Callable[[], set[str]],
    request_: OperationRequest,
    error: type[LeaseholdError],
    given: dict[str, Any],
) -> None:
    old = ended(engine, unique)
    before = names()

    with pytest.raises(error):
        operate(engine, old.run_id, replace(request_, **given))

    assert names() == before


@pytest.mark.each_store
@pytest.mark.parametrize("given", [{}, {"input": LARGE}], ids=["as before", "a large input"])
def test_a_recreate_that_another_one_overtook_leaves_nothing(
    engine: Engine, unique: str, names: Callable[[], set[str]], given: dict[str, Any]
) -> None:
    """Both looked at the run before: only the commit can tell which was faster."""
    looked_at = ended(engine, unique)
    once = replace(RECREATE, in_batch=True, **given)
    first = apply(engine, looked_at, once).created
    before = names()

    with pytest.raises(AlreadyRecreatedError):
        apply(engine, looked_at, once)

    assert first is not None
    assert names() == before
    assert files_of(engine, first) == FILES


def test_a_recreate_that_is_a_repeat_leaves_nothing_of_its_own(
    engine: Engine, unique: str, names: Callable[[], set[str]]
) -> None:
    looked_at = ended(engine, unique)
    bound = replace(RECREATE, generation=looked_at.position.dispatch.generation)
    first = apply(engine, looked_at, bound).created
    before = names()

    again = apply(engine, looked_at, bound).created

    assert first is not None
    assert again is not None
    assert again.run_id == first.run_id
    assert names() == before
    assert files_of(engine, first) == FILES


def test_a_recreate_whose_files_are_not_all_copied_leaves_none(
    engine: Engine, unique: str, names: Callable[[], set[str]]
) -> None:
    old = ended(engine, unique)
    before = names()

    with suppress(StoreUnavailableError):
        operate(full(engine), old.run_id, RECREATE)

    assert names() == before
    assert find_run(engine, old.run_id).manifest.recreated_as == ()
