"""Over a server and on a store, the same calls get the same answers, and the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold import Client, LeaseholdError
from leasehold.bootstrap import boot
from leasehold.domain.lifecycle import Operation
from tests.worlds.builders import environ_of
from tests.worlds.runs_api import runs_api

CATALOG = "tests.api.client.announcing"

#: A call of a client that knows the runs it has started, in their order.
Call = Callable[[Client, list[str]], Any]

EXAMPLES = count()

#: What differs between two stores, whatever is done: times, and random names.
RANDOM = {
    "createdAt",
    "updatedAt",
    "at",
    "alarmAt",
    "shard",
    "nonce",
    "life",
    "notBefore",
    "id",
    "setAt",
    "giveUpAt",
}


def _start(key: str, pipeline: str, value: Any, labels: Any) -> Call:
    def call(client: Client, runs: list[str]) -> Any:
        marked = f"{client.actor}-{key}" if key else key
        mine = {**labels, "of": client.actor}
        run = client.start(pipeline, value, idempotency_key=marked, labels=mine)
        if run.run_id not in runs:
            runs.append(run.run_id)
        return run

    return call


def _on_run(name: str, place: int, **words: Any) -> Call:
    def call(client: Client, runs: list[str]) -> Any:
        run_id = runs[place] if place < len(runs) else f"r-none{place}"
        answer = getattr(client, name)(run_id, **words)
        if name == "recreate":
            runs.append(answer.run_id)
        return answer

    return call


def _list(**wanted: Any) -> Call:
    def call(client: Client, _: list[str]) -> Any:
        return client.page(**{**wanted, "label": _labels(client, wanted.get("label"))}).runs

    return call


def _batch(operation: str, more: Any, **how: Any) -> Call:
    def call(client: Client, _: list[str]) -> Any:
        fits: Any = {"label": _labels(client, more)}
        done = client.batch(operation, fits, **how)
        return done.matched, done.changed, [code for _, code in done.refused]

    return call


def _labels(client: Client, more: Any) -> Any:
    """Return a label that the runs of this client alone have, and more of them."""
    mine = f"of:{client.actor}"
    return mine if more is None else [mine, *more]


def mostly(usual: list[Any], odd: list[Any]) -> st.SearchStrategy[Any]:
    """Return what is usual, and now and then what is odd."""
    return st.sampled_from([*usual * (1 + 6 * len(odd) // len(usual)), *odd])


MANY = [f"a:{number}" for number in range(16)]
TEXTS = mostly(["", "a", "é"], ["a\nb", "x" * 600])
LABELS = mostly([{}, {"team": "é"}], [{"": "x"}, {"a": 1}, {"a:b": "c"}])
MORE_LABELS = mostly([None, ["team:é"]], [[], ["team:é", "of:none"], [""], [1], ["a:b"] * 20, MANY])
PLACES = mostly([0, 1, 2], [9])
BOUND = {
    "reason": TEXTS,
    "generation": mostly([None, 1, 2], [-1]),
    "step": mostly([None, "ask"], ["refuse", ""]),
}
STEPS = mostly(["ask", "refuse"], ["none", "", "a/b", "x" * 100])


def _override(step: str, limits: dict[str, Any]) -> Call:
    return lambda client, _: client.override(step, **limits)


def _overrides(client: Client, _: list[str]) -> Any:
    return client.overrides()


def _upkeep(client: Client, _: list[str]) -> Any:
    return client.registry(), client.audit(), client.workers()


def _deliveries(**wanted: Any) -> Call:
    def call(client: Client, runs: list[str]) -> Any:
        page = client.list_deliveries(**wanted).deliveries
        return [one for one in page if one.run_id in runs]

    return call


def _clear(step: str) -> Call:
    return lambda client, _: client.clear_override(step)


START = partial(_start, "1", "answers", {"theText": "why?"}, {})

CALLS: st.SearchStrategy[Call] = st.one_of(
    st.builds(
        _start,
        mostly(["1", "2", "3"], ["a\nb", "x" * 300]),
        mostly(["answers", "refuses"], ["none"]),
        mostly([{"theText": "why?"}], [{"theText": 1}, None, [[]]]),
        LABELS,
    ),
    st.builds(
        _on_run, st.sampled_from(["get", "trace", "result", "output", "files", "calls"]), PLACES
    ),
    st.builds(
        _on_run,
        st.sampled_from(["pause", "resume", "cancel", "retry", "approve", "recreate"]),
        PLACES,
        **BOUND,
    ),
    st.builds(
        _on_run,
        st.just("recreate"),
        PLACES,
        from_step=mostly([None, "ask"], ["none", ""]),
        labels=st.none() | LABELS,
        input=mostly([{"theText": "what?"}], [None, float("nan")]),
    ),
    st.builds(
        _list,
        status=mostly([None, "PENDING"], ["done", ""]),
        pipeline=mostly([None, "answers"], [""]),
        dead_lettered=mostly([None, True, False], ["true", 1]),
        label=MORE_LABELS,
        paused=mostly([None, True], ["no"]),
        cancelled=st.sampled_from([None, True, False]),
        step=mostly([None, "ask"], [""]),
        since=mostly([None, "2020-01-01"], ["x", "3000-01-01"]),
        until=mostly([None, "2999-01-01"], [1]),
        limit=mostly([1, 50], [0, 1001, "5"]),
        page_token=mostly([None], ["", "?"]),
    ),
    st.builds(
        _override,
        STEPS,
        st.fixed_dictionaries(
            {
                "timeout_s": mostly([None, 30, 0.5], [0, 5000, float("nan"), "5"]),
                "deadline_s": mostly([None, 90], [5, 20.5]),
                "until": mostly(["2999-01-01"], ["2020-01-01", "2h"]),
                "why": mostly(["slow day"], ["", "a\nb"]),
            }
        ),
    ),
    st.builds(_on_run, st.just("deliveries"), PLACES),
    st.builds(
        _on_run,
        st.just("deliver"),
        PLACES,
        channel=mostly(["log"], ["none", "", "a\nb"]),
        reason=TEXTS,
    ),
    st.builds(
        _deliveries,
        channel=mostly([None, "log"], ["none", ""]),
        state=mostly([None, "due"], ["lost", ""]),
        limit=mostly([1, 50], [0, 1001, "5"]),
        page_token=mostly([None], ["", "?"]),
    ),
    st.just(_overrides),
    st.just(_upkeep),
    st.builds(_clear, STEPS),
    st.builds(
        _batch,
        mostly([*Operation], ["stop"]),
        MORE_LABELS,
        limit=mostly([1, 5], [0]),
        dry_run=st.booleans(),
        reason=TEXTS,
        step=st.sampled_from([None, "ask"]),
        from_step=mostly([None], ["ask", "none"]),
    ),
)


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a server with its own store, and the settings of another store."""

    def folder() -> Path:
        return tmp_path_factory.mktemp("way")

    nobody = "http://127.0.0.1:1"
    settings = {"LEASEHOLD_CATALOG": CATALOG, "LEASEHOLD_EVENTS": nobody}
    bundle = boot(environ_of(folder(), **settings))
    with runs_api(bundle.engine) as url:
        yield url, environ_of(folder(), **settings)
    bundle.close()


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(calls=st.lists(CALLS, min_size=1, max_size=12))
def test_both_ways_agree(ways: tuple[str, dict[str, str]], calls: list[Call]) -> None:
    agree(ways, calls)


@pytest.mark.nightly
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(calls=st.lists(CALLS, min_size=1, max_size=12))
def test_both_ways_agree_on_many_calls(ways: tuple[str, dict[str, str]], calls: list[Call]) -> None:
    agree(ways, calls)


def agree(ways: tuple[str, dict[str, str]], calls: list[Call]) -> None:
    """Make the calls in both ways; fail where an answer differs."""
    url, environ = ways
    actor = f"ada-{next(EXAMPLES)}"
    answers = []
    for client in (Client(url, actor=actor), Client(environ=environ, actor=actor)):
        runs: list[str] = []
        with client:
            answers.append([_answer(client, call, runs) for call in (START(), *calls)])

    assert answers[0] == answers[1]


def _answer(client: Client, call: Call, runs: list[str]) -> Any:
    try:
        return _plain(call(client, runs), runs)
    except LeaseholdError as error:
        return type(error), _plain(error.message, runs)


def _plain(value: Any, runs: list[str]) -> Any:
    """Return an answer without what differs by nature."""
    match value:
        case str():
            for number, run_id in enumerate(runs):
                value = value.replace(run_id, f"run {number}")
            return value
        case list() | tuple():
            return [_plain(one, runs) for one in value]
        case dict():
            return {name: _plain(one, runs) for name, one in value.items() if name not in RANDOM}
        case _ if hasattr(value, "model_dump"):
            return _plain(value.model_dump(), runs)
        case _:
            return value
