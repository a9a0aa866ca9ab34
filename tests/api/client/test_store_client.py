"""A client of a store: what it opens, what it needs, and who runs what it starts."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from leasehold import Client
from leasehold.errors import (
    CatalogError,
    InvalidInputError,
    SettingError,
    UnknownPipelineError,
    UnknownRunError,
)
from leasehold.testing import InProcessEngine

WHY = {"theText": "why?"}


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_store_that_is_not_there_is_empty_and_stays_away(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with Client(environ=environ) as client:
        assert list(client.runs()) == []
        assert client.batch("cancel", {"pipeline": "answers"}, limit=1).matched == 0
        for call in (client.get, client.trace, client.pause, client.resume):
            with pytest.raises(UnknownRunError):
                call("r-1")  # type: ignore[operator]
        with pytest.raises(UnknownPipelineError):
            client.start("none", WHY)
        with pytest.raises(InvalidInputError):
            client.start("answers", {})
        assert files(tmp_path) == []

        run = client.start("answers", WHY)

        assert "runs.db" in files(tmp_path)
        assert client.get(run).status == "PENDING"


def test_a_store_that_is_made_by_another_is_read_from_then_on(environ: dict[str, str]) -> None:
    with Client(environ=environ) as early, Client(environ=environ) as other:
        assert list(early.runs()) == []
        run = other.start("answers", WHY)

        assert early.get(run) == other.get(run)


def test_only_what_dispatches_a_step_needs_a_catalog(environ: dict[str, str]) -> None:
    with Client(environ=environ) as client:
        first, second = (client.start("answers", WHY) for _ in range(2))
    with Client(environ=environ | {"LEASEHOLD_CATALOG": "none_such"}) as client:
        assert client.pause(first).paused
        assert client.cancel(second).cancelled
        assert client.batch("cancel", {"pipeline": "answers"}, limit=9).changed == 1
        assert {run.cancelled for run in client.runs()} == {True}
        assert client.trace(first)
        assert client.why(first).words
        with pytest.raises(CatalogError, match="There is no catalog: 'none_such'"):
            client.start("answers", WHY)
        with pytest.raises(CatalogError):
            client.recreate(first)


def test_the_address_stands_for_the_setting(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with Client(f"sqlite:///{tmp_path}/other.db") as other, Client() as client:
        there, here = other.start("answers", WHY), client.start("answers", WHY)

        assert [run.run_id for run in other.runs()] == [there.run_id]
        assert [run.run_id for run in client.runs()] == [here.run_id]
    with pytest.raises(SettingError, match="LEASEHOLD_TASKS"):
        Client(environ=environ | {"LEASEHOLD_TASKS": "none"}).start("answers", WHY)


def test_who_starts_a_run_that_nothing_delivers_is_told_once_who_runs_it(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Client(environ=environ) as client:
        runs = [client.start("answers", WHY) for _ in range(3)]

    (said,) = caplog.messages
    assert said.startswith(f"run {runs[0].run_id} waits for a worker: ")
    assert "`leasehold serve`" in said


def test_a_run_of_a_store_is_run_by_its_server(
    environ: dict[str, str], engine: InProcessEngine
) -> None:
    with Client(environ=environ) as client:
        run = client.start("answers", WHY)
        engine.adopt_all()

        assert client.result(client.wait(run, 30)) == {"text": "WHY?", "words": 1}


def test_many_threads_use_one_client(environ: dict[str, str]) -> None:
    """Also from the first call on, which opens the store."""
    failed: list[BaseException] = []

    def start(number: int) -> None:
        try:
            client.start("answers", {"theText": str(number)})
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    with Client(environ=environ) as client:
        threads = [threading.Thread(target=start, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failed == []
        assert len(list(client.runs())) == 16
