"""A build looks at the runs that have not ended before it changes anything.

The step of the committed build runs with the catalog of tests.worlds.catalogs.sample, on the
emulators of Firestore and Cloud Storage; the runs were started by an older catalog.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest

from leasehold import PipelineEntry, Registry
from leasehold.cli.deploy.live_runs import INDEXES
from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.database import Database
from leasehold.deploy.resources.indexes import indexes
from leasehold.domain.status import RunStatus
from leasehold.google_clients.clients import EMULATOR, GoogleClients
from leasehold.services.read_runs import RunFilter, query_of
from leasehold.testing import InProcessEngine
from tests.deploy.build_machine import ROOT, BuildMachine, Done
from tests.deploy.deployment import IN_PROCESS, build
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.firestore import FirestoreAdmin
from tests.deploy.google_services.refusals import permission_denied
from tests.deploy.google_world import applied
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.emulators import firestore_host, need_firestore, storage_bucket
from tests.worlds.ports import own_port

NUMBER = "123456789012"
ALL_STEPS = [step["id"] for step in build()["steps"]]
BEFORE = ALL_STEPS[: ALL_STEPS.index("live-runs")]


@dataclass
class Project:
    """Its own project: Firestore as it is administered, and what it holds in the emulator."""

    server: GoogleServer
    storage: str
    bucket: str
    firestore: str
    name: str = field(default_factory=lambda: f"p-{secrets.token_hex(8)}")

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            EMULATOR: self.server.address,
            "STORAGE_EMULATOR_HOST": self.storage,
            "FIRESTORE_EMULATOR_HOST": self.firestore,
            "CLOUD_TASKS_EMULATOR_URL": f"http://127.0.0.1:{own_port()}",  # nobody is called
        }

    @property
    def admin(self) -> Any:
        return self.server.service(FirestoreAdmin)

    def create_store(self) -> None:
        """Do what `apply` does for the store; Firestore then builds the indexes of the query."""
        installation = Installation(self.name, NUMBER, "europe-west1")
        clients = GoogleClients(self.name, self.environ)
        asked = [index for index in indexes(clients, installation) if index.name in INDEXES]
        assert len(asked) == len(INDEXES)
        applied(Database(clients, installation), *asked)

    def start(self, given: Any, **changes: Any) -> str:
        """Start a run of `three` with a catalog whose step `add` is another one."""
        settings = {
            "LEASEHOLD_STORE": f"firestore://{self.name}/(default)",
            "LEASEHOLD_ARTIFACTS": f"gs://{self.bucket}/artifacts",
        }
        first = replace(STEPS["add"], **changes)
        steps = [first, *(one for one in STEPS if one.step_type != "add")]
        three = replace(PIPELINES["three"], steps=(first.step_type, "add_later", "add_again"))
        pipelines: list[PipelineEntry] = [three]
        with (
            patch.dict("os.environ", self.environ),
            InProcessEngine(
                Registry("dispatch", steps),
                Registry("pipelines", pipelines),
                environ=settings,
                workers=0,
            ) as engine,
        ):
            return engine.start("three", given).run_id

    def build(self, already: list[str], **chosen: str) -> tuple[BuildMachine, Done]:
        """Run the build; return what was done, and what its last step said."""
        machine = BuildMachine(ROOT, self.environ, IN_PROCESS)
        place = {"PROJECT_ID": self.name, "PROJECT_NUMBER": NUMBER, "_BUCKET": self.bucket}
        catalog = {"_CATALOG": "tests.worlds.catalogs.sample"}
        machine.run(build(), already=already, **place, **catalog, **chosen)
        return machine, list(machine.done.values())[-1]

    def look(self, **chosen: str) -> Done:
        """Run the one step."""
        _, done = self.build([step for step in ALL_STEPS if step != "live-runs"], **chosen)
        return done


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[GoogleServer, str, str]]:
    need_firestore()
    with GoogleServer() as server, storage_bucket() as (storage, bucket):
        yield server, storage, bucket


@pytest.fixture
def project(servers: tuple[GoogleServer, str, str]) -> Iterator[Project]:
    """A project whose store is ready, and holds nothing."""
    project = Project(*servers, firestore_host())
    project.server.world.project = project.name
    project.create_store()
    project.admin.build()
    yield project
    project.server.forget()


def test_runs_that_fit_are_looked_at_and_nothing_else_is_done(project: Project) -> None:
    """That a limit has changed keeps no run from going on."""
    project.start({"n": 1})
    project.start({"n": 1, "rest": "x" * 800_000}, max_retries=7)
    project.server.forget()

    done = project.look()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 live runs looked at, 0 would block with this catalog\n"
    assert project.server.writes() == []


def test_a_misfit_ends_the_build_before_it_changes_anything(project: Project) -> None:
    project.start({"n": 1})
    gone = project.start({"n": 1}, step_type="add_first")
    misfit = project.start({"text": "x" * 800_000}, handler="tests.worlds.catalogs.sample:thirty")
    project.server.forget()

    machine, done = project.build(BEFORE)

    assert list(machine.done) == ["live-runs"]
    assert project.server.writes() == []
    assert done.returncode == 1
    *lines, last = done.stdout.splitlines()
    said = dict(line.split(" ", 1) for line in lines)
    assert set(said) == {gone, misfit}
    assert said[gone].startswith("add_first step_unknown: the catalog knows no step 'add_first'")
    assert said[misfit].startswith("add input_mismatch: what it is given does not fit Number: n: ")
    assert last == "3 live runs looked at, 2 would block with this catalog"
    assert done.stderr.startswith("error: 2 live runs would block, so nothing is deployed: ")
    assert "_ALLOW_MISFITS=yes" in done.stderr
    assert done.stderr.count("\n") == 1


def test_who_knows_better_deploys_all_the_same(project: Project) -> None:
    run_id = project.start({"n": 1}, step_type="add_first")

    done = project.look(_ALLOW_MISFITS="yes")
    refused = project.look(_ALLOW_MISFITS="perhaps")

    assert done.returncode == 0
    assert done.stdout.startswith(f"{run_id} add_first step_unknown: ")
    assert done.stderr == (
        "warning: 1 live run will block, and they are deployed for all the same.\n"
    )
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_a_first_deploy_has_no_runs(servers: tuple[GoogleServer, str, str]) -> None:
    """Neither without a database, nor while Firestore builds its indexes."""
    project = Project(*servers, f"127.0.0.1:{own_port()}")  # who asks for runs waits in vain
    project.server.world.project = project.name

    empty = project.look()
    project.create_store()
    building = project.look()

    assert (empty.returncode, empty.stderr) == (building.returncode, building.stderr) == (0, "")
    assert empty.stdout == (
        "no live run to look at: there is no database (default) yet (a first deploy)\n"
    )
    assert building.stdout == (
        f"no live run to look at: index {INDEXES[0]} waits for Firestore, which is "
        "building it: some minutes (a first deploy)\n"
    )


def test_a_store_that_does_not_answer_ends_the_build(project: Project) -> None:
    """What is there refuses each query at once; an address without a server is tried for 20 s."""
    away = replace(project, firestore=project.server.address)

    done = away.look()

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"error: The store projects/{project.name}/databases/(default) does "
    )
    assert done.stderr.count("\n") == 1


def test_what_the_build_may_not_see_ends_it(project: Project) -> None:
    project.server.refuse("GetDatabase", permission_denied("datastore.databases.getMetadata"))

    done = project.look()

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: database (default) cannot be looked at: ")
    assert "datastore.databases.getMetadata" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_indexes_are_those_of_the_query() -> None:
    """Of those that sort alike, some with all fields that must be equal: Firestore merges them."""
    status = next(iter(RunStatus)).value
    query = query_of(RunFilter(status=status, dead_lettered=False))
    end = f"{query.order_by} {'DESCENDING' if query.descending else 'ASCENDING'})"

    fields = [
        field.removesuffix(" ASCENDING")
        for name in INDEXES
        for field in name.removeprefix("runs (").removesuffix(f", {end}").split(", ")
    ]

    assert sorted(fields) == sorted(query.equal)
    assert all(name.endswith(end) for name in INDEXES)
