"""Operations look at the catalog in force before they write: what could not run is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from leasehold.bootstrap import boot
from leasehold.ports.documents import Documents
from leasehold.registry.pipelines import NO_CATALOG, Catalog
from leasehold.services.adopt_runs import adopt_all
from leasehold.services.explain_run import explain_run
from tests.conformance.changed_code import IS_GONE, TAKES_LETTERS, catalog_with, catalog_without
from tests.conformance.test_operations import Service, booted, run_in

pytestmark = pytest.mark.one_store


@pytest.fixture
def service(documents: Documents, folder: Path, unique: str) -> Service:
    return Service(booted(documents, folder), f"test:{unique}")


def deployed(service: Service, folder: Path, catalog: Catalog) -> Service:
    """Return the same store, served by other code."""
    bundle = boot(
        {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
        catalog=catalog,
        documents=service.bundle.engine.documents,
    )
    return Service(bundle, service.label)


MODEL = catalog_with("add_later", handler=TAKES_LETTERS)
HANDLER = catalog_with("add_later", handler=IS_GONE)
STEP = catalog_without("add_later")


@pytest.mark.parametrize(
    ("catalog", "misfit", "words"),
    [
        (MODEL, "input_mismatch", "does not fit Letter: text: Field required"),
        (HANDLER, "handler_unavailable", "has no 'no_such_function'"),
        (STEP, "step_unknown", "the catalog knows no step 'add_later'; known: "),
    ],
)
def test_what_the_next_step_cannot_take_is_not_approved(
    service: Service, folder: Path, catalog: Catalog, misfit: str, words: str
) -> None:
    run_id = run_in(service, "BLOCKED")
    kept = service.stored(run_id)

    status, answer = deployed(service, folder, catalog).post(f"/runs/{run_id}:approve")

    assert (status, answer["error"]["code"]) == (409, "catalog_misfit")
    assert words in answer["error"]["message"]
    assert ".." not in answer["error"]["message"]
    details = answer["error"]["details"]
    assert (details["step"], details["misfit"]) == ("add_later", misfit)
    engine = deployed(service, folder, catalog).bundle.engine
    why = explain_run(engine, run_id, is_gone=lambda _: False).explanation
    assert why.operations == ("retry", "cancel")
    assert "`approve` is refused: with the catalog in force, step 'add_later' could" in why.words
    assert words in why.words
    assert service.stored(run_id) == kept
    assert service.post(f"/runs/{run_id}:approve")[0] == 200


def test_a_step_that_the_catalog_does_not_know_is_not_retried(
    service: Service, folder: Path
) -> None:
    """It was answered with PENDING, and blocked again a minute later."""
    run_id = run_in(service, "BLOCKED")
    kept = service.stored(run_id)

    status, answer = deployed(service, folder, catalog_without("add")).post(f"/runs/{run_id}:retry")

    assert (status, answer["error"]["code"]) == (409, "catalog_misfit")
    assert "the catalog knows no step 'add'; known: " in answer["error"]["message"]
    engine = deployed(service, folder, catalog_without("add")).bundle.engine
    why = explain_run(engine, run_id, is_gone=lambda _: False).explanation
    assert "`retry` is refused" not in why.words  # what blocks the run says it
    assert service.stored(run_id) == kept
    assert service.post(f"/runs/{run_id}:retry")[0] == 200


def test_who_takes_up_runs_says_at_once_which_step_the_catalog_does_not_know(
    service: Service, folder: Path
) -> None:
    """A renamed step was found a minute later, when its runs blocked."""
    run_in(service, "PENDING")
    lines: list[str] = []
    engine = deployed(service, folder, catalog_without("add")).bundle.engine
    engine = replace(engine, listeners=replace(engine.listeners, log=lines.append))

    adopt_all(engine, is_gone=lambda _: False)

    (line,) = (one for one in lines if one.startswith("the catalog knows no step 'add', at which "))
    assert re.search(r" live runs? \(r-\w+(, …)?\) will block", line)
    assert "add_later" in line


@pytest.mark.parametrize(
    ("catalog", "step", "misfit"),
    [
        (HANDLER, "add_later", "handler_unavailable"),
        (STEP, "add_later", "step_unknown"),
        (catalog_without("add"), "add", "step_unknown"),
    ],
)
def test_an_edited_output_is_not_handed_off_to_a_step_that_could_not_run(
    service: Service, folder: Path, catalog: Catalog, step: str, misfit: str
) -> None:
    run_id = run_in(service, "BLOCKED")
    kept, edited = service.stored(run_id), {"output": {"n": 7}}

    status, answer = deployed(service, folder, catalog).post(f"/runs/{run_id}:approve", edited)

    assert (status, answer["error"]["code"]) == (409, "catalog_misfit")
    details = answer["error"]["details"]
    assert (details["step"], details["misfit"]) == (step, misfit)
    assert service.stored(run_id) == kept
    assert service.post(f"/runs/{run_id}:approve", edited)[0] == 200


def test_a_run_is_not_recreated_before_a_step_that_could_not_run(
    service: Service, folder: Path
) -> None:
    run_id = service.start()
    service.completed(run_id)

    after = deployed(service, folder, HANDLER)
    status, answer = after.post(f"/runs/{run_id}:recreate", {"fromStep": "add"})

    assert (status, answer["error"]["details"]["step"]) == (409, "add_later")


def test_who_has_the_store_alone_may_retry_a_run(service: Service, folder: Path) -> None:
    """A person on call, without the code."""
    run_id = run_in(service, "BLOCKED")

    assert deployed(service, folder, NO_CATALOG).post(f"/runs/{run_id}:retry")[0] == 200


@pytest.mark.parametrize("catalog", [MODEL, HANDLER], ids=["model", "handler"])
def test_a_run_is_not_recreated_at_a_step_that_could_not_run(
    service: Service, folder: Path, catalog: Catalog
) -> None:
    run_id = service.start()
    service.completed(run_id)
    kept, after = service.stored(run_id), deployed(service, folder, catalog)

    refused = after.post(f"/runs/{run_id}:recreate", {"fromStep": "add_later"})
    behind = after.post(f"/runs/{run_id}:recreate", {"fromStep": "add_again"})

    assert (refused[0], refused[1]["error"]["code"]) == (409, "catalog_misfit")
    assert (behind[0], service.get(behind[1]["runId"]).current_step) == (200, "add_again")
    assert service.stored(run_id)[1] != kept[1]  # only by the second one
    assert len(service.get(run_id).recreated_as) == 1


def test_a_run_whose_pipeline_is_gone_is_not_recreated(service: Service, folder: Path) -> None:
    """The refusal said neither that nothing was changed nor what to do."""
    run_id = run_in(service, "PENDING+cancelled")
    kept, after = service.stored(run_id), deployed(service, folder, catalog_without("add"))

    status, answer = after.post(f"/runs/{run_id}:recreate")
    why = explain_run(after.bundle.engine, run_id, is_gone=lambda _: False).explanation.words

    assert (status, answer["error"]["code"]) == (409, "catalog_misfit")
    assert "the catalog knows no pipeline 'three'; known: " in answer["error"]["message"]
    assert answer["error"]["message"].endswith(
        "Nothing was changed; correct the code and try again."
    )
    assert "`recreate` is refused: with the catalog in force, " in why
    assert service.stored(run_id) == kept
    assert service.post(f"/runs/{run_id}:recreate")[0] == 200


def test_of_a_run_that_is_live_its_state_is_said_and_not_its_pipeline(
    service: Service, folder: Path
) -> None:
    run_id = run_in(service, "PENDING")

    _, answer = deployed(service, folder, catalog_without("add")).post(f"/runs/{run_id}:recreate")

    assert answer["error"]["code"] == "not_allowed"


def test_an_old_input_has_to_fit_the_first_step_as_it_is_now(
    service: Service, folder: Path
) -> None:
    run_id = run_in(service, "PENDING+cancelled")
    after = deployed(service, folder, catalog_with("add", handler=TAKES_LETTERS))

    _, answer = after.post(f"/runs/{run_id}:recreate")

    assert answer["error"]["details"]["misfit"] == "input_mismatch"
    assert service.get(run_id).recreated_as == ()


@pytest.mark.each_store
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_batch_refuses_what_could_not_run_and_changes_nothing_of_it(
    service: Service, folder: Path, dry_run: bool
) -> None:
    blocked, ended = run_in(service, "BLOCKED"), run_in(service, "ERROR+dead-lettered")
    kept, after = [service.stored(one) for one in (blocked, ended)], deployed
    first = catalog_with("add", handler=TAKES_LETTERS)

    _, approved = after(service, folder, MODEL).batch("approve", dryRun=dry_run)
    _, recreated = after(service, folder, first).batch("recreate", dryRun=dry_run)

    assert {one["runId"]: one["code"] for one in approved["refused"]}[blocked] == "catalog_misfit"
    assert {one["runId"]: one["code"] for one in recreated["refused"]}[ended] == "catalog_misfit"
    assert [service.stored(one) for one in (blocked, ended)] == kept
