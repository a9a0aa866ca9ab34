"""What handlers may do to their worker: nothing. Real processes, and as hostile as they come.

Each handler is hostile in its first attempt, and there is a step after it: a run that completes
has shown that the attempt ended, that it was counted once, and that the worker works on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.sandbox.hostile_imports.place import NOTES, WORKER
from tests.chaos.sandbox.hostile_place import (
    HANG,
    HANG_AT_A_LINE,
    IMPORTS,
    LEASE_S,
    MEMORY_LIMIT,
    SOFT_S,
    SPIN,
    HostilePlace,
    Story,
    lines_of,
)
from tests.worlds.waiting import until

pytestmark = pytest.mark.cold  # what they break is as it is in production

#: How much later than its limit an attempt may end where many others run: benchmarks are exact.
LATE_S = 15.0


#: So many attempts take place in a process; test_reuse.py looks at those that share one.
ATTEMPTS = [pytest.param(1, id="fresh"), pytest.param(100, id="reused", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module", params=ATTEMPTS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostilePlace]:
    """A worker of which one fork server serves all tests; its processes may be used again, or not.

    An attempt that ends in order leaves its process to whatever attempt of the same step is next.
    """
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "imports").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES, str(folder / "imports"))
        patch.setenv(WORKER, str(os.getpid()))
        place = HostilePlace(folder, request.param)
        yield place
        place.close()


@pytest.fixture(params=ATTEMPTS)
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostilePlace]:
    """A worker of the test's own, whose fork server may come to harm."""
    place = HostilePlace(tmp_path, request.param)
    yield place
    place.close()


def ways(stories: Mapping[str, Story]) -> dict[str, str]:
    """Return how each first attempt ended."""
    return {name: story.how for name, story in stories.items()}


def all_alike(names: Iterable[str], value: Any) -> dict[str, Any]:
    return dict.fromkeys(names, value)


def check_each_failed_once_and_went_on(stories: Mapping[str, Story]) -> None:
    assert {name: story.counts for name, story in stories.items()} == all_alike(stories, (1, 0, 0))
    assert {name: story.output for name, story in stories.items()} == all_alike(
        stories, {"attempt": 2}
    )
    assert {name: story.run.fencing_token for name, story in stories.items()} == all_alike(
        stories, 3
    )
    assert [name for name, story in stories.items() if not story.goes_on] == []


def check_each_completed_at_once(stories: Mapping[str, Story], output: Any) -> None:
    assert ways(stories) == all_alike(stories, "COMPLETED")
    assert {name: story.output for name, story in stories.items()} == all_alike(stories, output)
    assert {name: story.counts for name, story in stories.items()} == all_alike(stories, (0, 0, 0))
    assert [name for name, story in stories.items() if not story.goes_on] == []


def test_what_does_not_end_is_ended_at_its_limit(place: HostilePlace) -> None:
    check_each_is_ended_at_its_limit(place, HANG_AT_A_LINE, HANG)


@pytest.mark.nightly
def test_nor_do_others_that_spin(place: HostilePlace) -> None:
    check_each_is_ended_at_its_limit(place, SPIN)


def check_each_is_ended_at_its_limit(
    place: HostilePlace, at_a_line: Sequence[str], elsewhere: Sequence[str] = ()
) -> None:
    """Neither before it nor long after it, and with the line at which it hung."""
    stories = place.run(*at_a_line, *elsewhere)

    assert ways(stories) == all_alike(stories, "agent_timeout_exceeded")
    check_each_failed_once_and_went_on(stories)
    late = {name: story.seconds for name, story in stories.items()}
    assert {name: s for name, s in late.items() if not SOFT_S <= s < SOFT_S + LATE_S} == {}
    assert {
        name: stories[name].stacks
        for name in at_a_line
        if not re.search(rf"hostile\.py.*\b({lines_of(name)})\b", stories[name].stacks)
    } == {}
    place.check_nothing_is_left()


def test_one_that_takes_its_own_end_away_is_ended_all_the_same(place: HostilePlace) -> None:
    """With the default action of its signals it dies of the first one that it gets."""
    stories = place.run(
        "becomes_another_program", "closes_everything_and_hangs", "forgets_its_signals"
    )

    allowed = {"agent_timeout_exceeded", "handler_died", "handler_garbled"}
    assert [story.how for story in stories.values() if story.how not in allowed] == []
    check_each_failed_once_and_went_on(stories)
    place.check_nothing_is_left()


def test_a_lease_outlasts_a_call_that_holds_the_interpreter(place: HostilePlace) -> None:
    """Renewals come from another process: the call takes longer than a lease does."""
    name, seconds = "holds_the_interpreter_for_a_while", LEASE_S + 1
    story = place.run(name, seconds=seconds)[name]

    assert (story.how, story.output, story.counts) == ("COMPLETED", {"attempt": 1}, (0, 0, 0))
    assert story.seconds >= seconds
    assert story.run.fencing_token == 2


def test_no_process_outlives_its_attempt(place: HostilePlace) -> None:
    """Whatever session it is in, and whatever its parent was; its return value is recorded."""
    returned = (
        "leaves_a_daemon",
        "leaves_a_program",
        "leaves_many_children",
        "lets_a_copy_go_on",
        "returns_from_a_copy",
        "raises_in_a_copy",
        "leaves_threads",
        "hangs_at_exit",
        "leaves_an_alarm",
    )
    stories = place.run("has_many_children", *returned)

    many = {"has_many_children": stories["has_many_children"]}
    assert ways(many) == {"has_many_children": "agent_timeout_exceeded"}
    check_each_failed_once_and_went_on(many)
    check_each_completed_at_once({name: stories[name] for name in returned}, {"who": "parent"})
    place.check_nothing_is_left()


def test_a_handler_that_dies_ends_no_other_attempt(place: HostilePlace) -> None:
    """How it died is said: the signal, or the exit code."""
    deaths = {
        "aborts": "SIGABRT",
        "crashes": "SIGSEGV",
        "dies_before_its_copy": "",
        "exits_as_if_late": "10",
        "exits_at_once": "0",
        "exits_from_a_thread": "7",
        "kills_its_group": "SIGKILL",
        "kills_itself": "SIGKILL",
    }
    stories = place.run(*deaths)

    how = {name: story.how for name, story in stories.items()}
    assert {name: it for name, it in how.items() if not it.startswith("handler_")} == {}
    problems = {name: story.problem for name, story in stories.items()}
    assert {name: it for name, it in problems.items() if deaths[name] not in it} == {}
    check_each_failed_once_and_went_on(stories)
    place.check_nothing_is_left()


def test_each_output_and_error_that_cannot_be_kept_is_told_apart(place: HostilePlace) -> None:
    stories = place.run(
        "exits",
        "is_cancelled",
        "raises_a_base_exception",
        "raises_an_interrupt",
        "raises_too_many_words",
        "raises_what_cannot_be_pickled",
        "raises_what_has_no_words",
    )

    assert ways(stories) == {
        "exits": "handler_raised",
        "is_cancelled": "handler_raised",
        "raises_a_base_exception": "handler_raised",
        "raises_an_interrupt": "handler_raised",
        "raises_too_many_words": "handler_raised",
        "raises_what_cannot_be_pickled": "handler_raised",
        "raises_what_has_no_words": "handler_raised",
    }
    check_each_failed_once_and_went_on(stories)
    assert stories["raises_what_cannot_be_pickled"].problem == "this much is known"
    place.check_nothing_is_left()


def test_an_output_that_is_not_json_blocks_until_the_handler_is_another(
    place: HostilePlace,
) -> None:
    """Another attempt would return the same."""
    stories = place.run("returns_an_object", "returns_nan")

    assert ways(stories) == {
        "returns_an_object": "handler_mistake",
        "returns_nan": "handler_mistake",
    }
    for story in stories.values():
        assert story.run.error is not None
        assert story.run.error.code == "invalid_output"
        assert (story.run.status, story.run.position.attempts.failed) == ("BLOCKED", 0)
    place.check_nothing_is_left()


def test_an_output_that_is_too_large_blocks_until_the_handler_is_another(
    place: HostilePlace,
) -> None:
    story = place.run("returns_too_much")["returns_too_much"]

    assert story.how == "handler_mistake"
    assert story.run.error is not None
    assert (story.run.error.code, story.run.dead_lettered) == ("too_large", False)
    place.check_nothing_is_left()


def test_noise_is_kept_out_of_the_answer_and_bounded_in_the_log(
    place: HostilePlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Two million bytes are printed; the log has the first lines."""
    caplog.set_level("INFO")

    stories = place.run("prints")

    check_each_completed_at_once(stories, {"who": "parent"})
    printed = [record.getMessage() for record in caplog.records]
    assert any("the first line of stdout" in line for line in printed)
    assert sum(map(len, printed)) < 2**20
    place.check_nothing_is_left()


def test_what_a_handler_breaks_in_its_process_harms_that_attempt_alone(
    place: HostilePlace,
) -> None:
    """Its return value still counts, and the process of the next one is as new."""
    breaking = (
        "breaks_its_python",
        "changes_its_limits",
        "changes_its_variables",
        "deletes_its_folder",
    )
    broken = place.run(*breaking)
    beyond_repair = place.run("breaks_what_carries_its_answer")
    after = place.run("is_not_touched_by_others", threads=4)

    check_each_completed_at_once(broken, {"who": "parent"})
    check_each_failed_once_and_went_on(beyond_repair)
    check_each_completed_at_once(after, {"who": "parent"})
    place.check_nothing_is_left()


def test_a_conversation_that_is_broken_or_forged_is_never_an_output(place: HostilePlace) -> None:
    """Bytes that the handler itself writes to its descriptors are not trusted."""
    stories = place.run(
        "closes_everything",
        "forges_answers",
        "uses_sockets_of_others",
        "never_stops_writing_garbage",
        "writes_garbage_everywhere",
    )

    how = ways(stories)
    assert {name: it for name, it in how.items() if not it.startswith("handler_")} == {}
    check_each_failed_once_and_went_on(stories)
    place.check_nothing_is_left()


def test_the_import_of_a_handler_is_held_to_its_own_limit(place: HostilePlace) -> None:
    """It happens in the sandbox; the worker is none the worse for it."""
    stories = place.run(*IMPORTS)

    assert ways(stories) == {
        "import_dies": "handler_unavailable",
        "import_eats_memory": "handler_unavailable",
        "import_exits": "handler_unavailable",
        "import_fails": "handler_unavailable",
        "import_hangs": "handler_unavailable",
        "import_is_killed": "handler_unavailable",
        "import_prints": "COMPLETED",
        "import_starts_threads": "COMPLETED",
    }
    assert "took longer than 10 s" in stories["import_hangs"].problem
    assert "took more than the 96 MiB of memory" in stories["import_eats_memory"].problem
    assert "raised SystemExit: os._exit(0), at dies.py:12" in stories["import_dies"].problem
    assert "there is no model of that name" in stories["import_fails"].problem
    assert stories["import_starts_threads"].output == {"alive": 4}
    assert stories["import_prints"].output == {"who": "parent"}
    place.check_nothing_is_left()


def test_what_takes_too_much_memory_is_said_to_have(place: HostilePlace) -> None:
    """By itself or with its children; and it is no mystery afterwards."""
    stories = place.run("eats_memory", "eats_memory_in_children")

    assert ways(stories) == all_alike(stories, "memory_limit_exceeded")
    limit = f"{MEMORY_LIMIT // 2**20} MiB"
    assert [story.problem for story in stories.values() if limit not in story.problem] == []
    check_each_failed_once_and_went_on(stories)
    place.check_nothing_is_left()


def test_a_handler_whose_lease_is_lost_is_ended_and_records_nothing(place: HostilePlace) -> None:
    """It hears no signal; the next attempt has the run meanwhile."""
    run_id = place.begin("swallows")["swallows"]
    held = until(lambda: [it for it in place.engine.held_runs() if it.manifest.run_id == run_id])

    for one in held:
        one.renew_every = None

    story = place.story(run_id)
    assert story.output == {"attempt": 2}
    assert story.counts[0] + story.counts[2] == 1
    assert story.goes_on
    place.check_nothing_is_left()


@pytest.mark.nightly  # test_outages.py has one in the gate, whose attempts have no engine
def test_a_worker_whose_fork_server_is_killed_works_on(alone: HostilePlace) -> None:
    """The handler kills its parent; the effect on others is not counted as a failure."""
    stories = alone.run("kills_its_parent")
    after = alone.run("sleeps", "exits_at_once")

    assert ways(stories) == {"kills_its_parent": "process_unavailable"}
    assert stories["kills_its_parent"].output == {"attempt": 2}
    assert stories["kills_its_parent"].goes_on
    check_each_failed_once_and_went_on(after)
    alone.check_nothing_is_left()


@pytest.mark.nightly  # as above
def test_a_worker_whose_fork_server_is_frozen_works_on(alone: HostilePlace) -> None:
    """The leftovers of the handler are ended all the same, and so is a frozen process."""
    stories = alone.run("freezes_its_parent")
    after = alone.run("exits_at_once")

    check_each_completed_at_once(stories, {"who": "parent"})
    check_each_failed_once_and_went_on(after)
    alone.check_nothing_is_left()
