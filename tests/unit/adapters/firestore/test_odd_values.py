"""Documents that a person edited in the console: one of them stops no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud import firestore

from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.domain.stored import Document, Ref, Write
from leasehold.ports.documents import Query
from leasehold.services.audit import audit
from leasehold.services.read_runs import RunFilter, list_runs
from leasehold.services.sweep import sweep
from leasehold.testing import InProcessEngine
from tests.unit.adapters.firestore.wire import Place
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.emulators import environment

ODD: dict[str, Any] = {
    "a geo point": firestore.GeoPoint(1.0, 2.0),
    "bytes": b"\xff",
    "a map": {"a": {"b": [1]}},
    "a list": [1, {"a": 1}],
    "a number": 7,
    "no number": float("nan"),
    "nothing": None,
}


@pytest.fixture(scope="module")
def client(place: Place) -> Iterator[firestore.Client]:
    with environment(FIRESTORE_EMULATOR_HOST=place.host):
        client = firestore.Client(project=place.project)
    yield client
    client.close()


@pytest.fixture
def engine(place: Place, tmp_path: Path) -> Iterator[InProcessEngine]:
    environ = {
        "LEASEHOLD_STORE": f"firestore://{place.project}/(default)",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",
        "PIPELINE_DISPATCH_GRACE_S": "0.001",
    }
    with (
        environment(FIRESTORE_EMULATOR_HOST=place.host),
        InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as engine,
    ):
        yield engine


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "field", ["pipeline", "status", "dispatch", "steps", "plan", "createdAt", "alarmAt", "of_later"]
)
@pytest.mark.parametrize("odd", ODD)
def test_all_others_are_swept_listed_and_audited(
    engine: InProcessEngine, client: firestore.Client, odd: str, field: str
) -> None:
    spoiled, good = (engine.start("three", {"n": number}).run_id for number in (1, 2))
    client.collection("runs").document(spoiled).update({field: ODD[odd]})

    sweep(engine.engine)
    listed = {run.run_id for run in list_runs(engine.engine, RunFilter(), limit=1000).runs}
    found = {one.run_id for one in audit(engine.engine)}
    adopted = engine.adopt_all()

    assert good in listed
    assert good not in found
    assert adopted
    for run_id in (spoiled, good):
        client.recursive_delete(client.collection("runs").document(run_id))


@pytest.mark.parametrize("odd", [*ODD, "a reference"])
def test_what_no_leasehold_writes_is_kept_and_paged_over(
    documents: FirestoreDocuments, client: firestore.Client, ref: Ref, odd: str
) -> None:
    value = ODD.get(odd, client.document("runs/r-other"))
    raw = client.collection("runs").document(ref.id)
    raw.set({"createdAt": value, "count": 1, "pipeline": ref.id})

    def count(document: Document | None, _: Any) -> Write[None]:
        assert document is not None
        return Write(None, {**document, "count": 2})

    documents.transact(ref, count)
    client.collection("runs").document(f"{ref.id}-z").set({"createdAt": value, "pipeline": ref.id})
    by_creation = {"collection": "runs", "order_by": "createdAt", "equal": {"pipeline": ref.id}}
    (first,) = documents.query(Query(**by_creation, limit=1))
    behind = (first.document["createdAt"], first.ref.id)
    rest = documents.query(Query(**by_creation, after=behind))

    kept = raw.get().to_dict()
    assert kept is not None
    assert repr(kept["createdAt"]) == repr(value) or kept["createdAt"] == value
    assert kept["count"] == 2
    assert [found.ref.id for found in rest] == [f"{ref.id}-z"]
