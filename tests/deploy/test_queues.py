"""The queues of a catalog, and that no task is delivered that no instance is there for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from leasehold.bootstrap import load_catalog
from leasehold.deploy.resources.queue import Queue, queues_of
from leasehold.errors import SettingError
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, Trigger
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry


def _step(step_type: str, handler: str = "module:handler", **fields: Any) -> StepDispatchEntry:
    minutes = timedelta(minutes=1)
    return StepDispatchEntry(
        step_type=step_type,
        handler=handler,
        agent_timeout=minutes,
        dispatch_deadline=2 * minutes,
        **fields,
    )


def _catalog(*steps: StepDispatchEntry) -> Catalog:
    return Catalog(Registry("dispatch", steps), Registry("pipelines", []))


def _function(max_instances: int, concurrency: int = 1) -> FunctionEntry:
    return FunctionEntry(
        name="execute_step",
        summary="",
        trigger=Trigger.TASKS,
        uses=(),
        timeout=timedelta(minutes=31),
        memory_mib=512,
        concurrency=concurrency,
        max_instances=max_instances,
    )


def test_the_queues_of_this_bundle_deliver_no_more_than_its_function_answers_at_once() -> None:
    queues = queues_of(load_catalog("pipelines.catalog"), {}, FUNCTIONS.of_tasks)

    assert [queue.id for queue in queues] == ["extraction", "synthesis", "review", "publish"]
    assert sum(queue.concurrency for queue in queues) <= FUNCTIONS["execute_step"].requests_at_once
    assert all(queue.concurrency >= 1 for queue in queues)


def test_each_queue_has_an_equal_share_and_nothing_is_shared_twice() -> None:
    catalog = _catalog(_step("one"), _step("two"), _step("three"))

    queues = queues_of(catalog, {}, _function(5, 4))

    assert queues == (
        Queue("one", ("one",), 6),
        Queue("two", ("two",), 6),
        Queue("three", ("three",), 6),
    )


def test_the_other_queues_share_the_rest_of_the_rate() -> None:
    catalog = _catalog(_step("one"), _step("two"), _step("three"))

    queues = queues_of(catalog, {"two": 7}, _function(10))

    assert [queue.concurrency for queue in queues] == [1, 7, 1]


def test_a_queue_is_named_as_the_engine_names_it_and_steps_may_share_one() -> None:
    catalog = _catalog(
        _step("send_mail"),
        _step("ask", queue="slow_ones"),
        _step("send-mail", env_overrides=("A", "B")),
    )

    queues = queues_of(catalog, {}, _function(4))

    assert queues == (
        Queue("send-mail", ("send_mail", "send-mail"), 2),
        Queue("slow-ones", ("ask",), 2),
    )


def test_a_remote_step_has_no_queue() -> None:
    assert queues_of(_catalog(_step("far", REMOTE)), {}, _function(1)) == ()


def test_no_queue_gets_more_than_the_service_allows() -> None:
    (queue,) = queues_of(_catalog(_step("one")), {}, _function(100, 1000))

    assert queue.concurrency == 5000


@pytest.mark.parametrize(
    ("concurrency", "instances", "words"),
    [
        ({}, 1, "is 1; allowed: 2 or more: CONCURRENCY of deployment.py gives 0 of them away"),
        ({"one": 9, "two": 2}, 10, "is 10; allowed: 11 or more: CONCURRENCY of deployment.py"),
        ({"one": 10}, 10, "gives 10 of them away, and each of 1 other queues needs one; change"),
        ({"three": 1}, 10, "is 'three'; allowed: the queues of the catalog: one, two."),
        ({"one": 0}, 10, "'one' in CONCURRENCY of deployment.py is 0; allowed: a whole number"),
        ({"one": 5001}, 9000, "is 5001; allowed: a whole number from 1 to 5000."),
        ({"one": "4"}, 10, "is '4'; allowed: a whole number from 1 to 5000."),
        ({"one": True}, 10, "is True; allowed: a whole number from 1 to 5000."),
    ],
)
def test_what_cannot_be_delivered_is_refused(
    concurrency: Mapping[str, Any], instances: int, words: str
) -> None:
    with pytest.raises(SettingError) as refused:
        queues_of(_catalog(_step("one"), _step("two")), concurrency, _function(instances))

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
