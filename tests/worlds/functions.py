"""The entry files of the functions, under the real framework, and the store that they share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import functions_framework
import pytest
from flask import Flask
from flask.testing import FlaskClient

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.delivery import Delivery
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Write
from leasehold.ports.documents import Query
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.own_process import own_process

ROOT = Path(__file__).parents[2]


def one_store(folder: Path, monkeypatch: pytest.MonkeyPatch, **others: str) -> dict[str, str]:
    """Return the settings of the functions and of the engine beside them: one store."""
    settings = environ_of(folder, **others)
    store = folder / "runs.db"
    store.touch(mode=0o600)
    store.write_bytes(_empty_store())
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@functools.cache
def _empty_store() -> bytes:
    """Make a store, once in a process of tests: its tables take longer than most requests."""
    with TemporaryDirectory() as folder:
        store = Path(folder, "runs.db")
        SqliteDocuments(store, SystemClock()).close()
        return store.read_bytes()


class Function:
    """An entry file under the real framework, which has not answered before.

    One test after another uses its app, as to make it takes as long as most requests. The settings
    that the file reads when it is imported are read anew for each.
    """

    _idle: ClassVar[dict[str, tuple[Flask, Any]]] = {}

    def __init__(self, name: str) -> None:
        self._name = name
        self.provider: Any
        if name in self._idle:
            self._app, self.provider = self._idle.pop(name)
            self.provider.__init__()
        else:
            path = ROOT / "shared/leasehold/functions" / f"{name}.py"
            self._app = functions_framework.create_app(name, str(path))
            self.provider = sys.modules[name].provider
        self.client: FlaskClient = self._app.test_client()

    def close(self) -> None:
        """Close what was opened, and leave the app to the next test."""
        self.provider.close()
        self._idle[self._name] = self._app, self.provider

    def post(self, path: str = "/", json: Any = None, **options: Any) -> tuple[int, Any]:
        answer = self.client.post(path, json=json, **options)
        return answer.status_code, answer.get_json()

    def get(self, path: str) -> tuple[int, Any]:
        answer = self.client.get(path)
        return answer.status_code, answer.get_json()


def function_of(name: str) -> Iterator[Function]:
    """Give an entry file under the real framework; it is forgotten afterwards."""
    with own_process():
        function = Function(name)
        try:
            yield function
        finally:
            function.close()
            sys.modules.pop(name, None)  # one of the same name may have been forgotten since
            # it kept this one's
            functions_framework.errorhandler = functions_framework.DummyErrorHandler()


def edit(engine: InProcessEngine, run_id: str, **fields: Any) -> None:
    """Write these fields of the run's document, as a person may in the store's console."""
    documents = engine.engine.documents
    documents.transact(run_ref(run_id), lambda found, _: Write(None, {**(found or {}), **fields}))


def spoil(engine: InProcessEngine, run_id: str) -> None:
    """Give the run a status that this version does not know."""
    edit(engine, run_id, status="WAITING_V2")


def delivery_of(engine: InProcessEngine) -> Delivery:
    """Return what is owed of the one run there is, as it stands."""
    (found,) = engine.engine.documents.query(Query("deliveries"))
    return Delivery.model_validate(found.document)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the announcements that the channel logged."""
    lines = [r.getMessage() for r in caplog.records if r.name == "leasehold.events"]
    return [line for line in lines if '"links"' in line]  # the trace events have none
