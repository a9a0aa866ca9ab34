"""The queue inside one process: each task once, at its time, to an idle worker."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.domain.effect import Task
from leasehold.testing import FrozenClock

START = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NEVER = datetime(9999, 1, 1, tzinfo=UTC)


def task(name: str, not_before: datetime = LONG_AGO) -> Task:
    return Task(
        name=name,
        queue="steps",
        run_id="r-1",
        generation=1,
        not_before=not_before,
        deadline=timedelta(minutes=10),
    )


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(START)


@pytest.fixture
def frozen(clock: FrozenClock) -> InProcessTasks:
    """A queue whose time stands still."""
    return InProcessTasks(clock)


@pytest.fixture
def queue() -> InProcessTasks:
    """A queue that threads wait on."""
    return InProcessTasks(SystemClock())


@pytest.fixture
def threads(queue: InProcessTasks) -> Iterator[ThreadPoolExecutor]:
    """Threads that a test which fails does not wait for."""
    with ThreadPoolExecutor(16) as threads:
        yield threads
        queue.close()


def idle(
    queue: InProcessTasks, threads: ThreadPoolExecutor, count: int
) -> list[Future[Task | None]]:
    """Return so many threads that wait for a task by now."""
    waiting = [threads.submit(queue.exchange, None, ()) for _ in range(count)]
    deadline = time.monotonic() + 10
    while queue._idle < count:  # noqa: SLF001 - nothing else shows who waits
        assert time.monotonic() < deadline
    return waiting


def drained(queue: InProcessTasks) -> list[str]:
    """Return the names of all tasks that are due, in the order they come."""
    return [taken.name for taken in iter(queue.take_due, None)]


def name_of(future: Future[Task | None]) -> str | None:
    taken = future.result(timeout=60)
    return None if taken is None else taken.name


def test_a_task_that_waits_is_not_taken_twice(frozen: InProcessTasks) -> None:
    frozen.create(task("a"))
    frozen.create(task("a"))

    assert drained(frozen) == ["a"]


def test_a_task_that_is_being_delivered_is_not_taken_again(frozen: InProcessTasks) -> None:
    frozen.create(task("a"))
    delivered = frozen.exchange(None, ())

    frozen.create(task("a"))

    assert delivered == task("a")
    assert drained(frozen) == []


def test_a_task_that_was_delivered_can_come_again(frozen: InProcessTasks) -> None:
    """The manifests say what is owed: the queue forgets what it gave back."""
    frozen.create(task("a"))
    delivered = frozen.exchange(None, ())

    assert frozen.exchange(delivered, [task("a")]) == task("a")


def test_a_task_exists_while_it_waits_and_while_it_is_delivered(frozen: InProcessTasks) -> None:
    assert not frozen.exists(task("a"))

    frozen.create(task("a"))
    assert frozen.exists(task("a"))

    delivered = frozen.exchange(None, ())
    assert frozen.exists(task("a"))

    frozen.exchange(delivered, [task("b")])
    assert not frozen.exists(task("a"))
    assert frozen.exists(task("b"))


def test_a_task_that_was_taken_without_waiting_counts_as_delivered(frozen: InProcessTasks) -> None:
    frozen.create(task("a"))

    frozen.take_due()

    assert not frozen.exists(task("a"))


def test_tasks_come_in_the_order_of_their_times(frozen: InProcessTasks) -> None:
    for name, hours in (("third", 1), ("first", 3), ("second", 2)):
        frozen.create(task(name, START - timedelta(hours=hours)))

    assert drained(frozen) == ["first", "second", "third"]


def test_tasks_of_one_time_come_in_the_order_they_were_created(frozen: InProcessTasks) -> None:
    for name in ("c", "a", "b"):
        frozen.create(task(name))

    assert drained(frozen) == ["c", "a", "b"]


def test_a_task_does_not_come_before_its_time(frozen: InProcessTasks, clock: FrozenClock) -> None:
    frozen.create(task("a", START + timedelta(seconds=10)))

    clock.advance(9.999)
    assert drained(frozen) == []

    clock.advance(0.001)
    assert drained(frozen) == ["a"]


def test_an_owed_task_is_taken_by_its_creator(frozen: InProcessTasks) -> None:
    """In one call: a worker goes on with its own run without waking another."""
    assert frozen.exchange(None, [task("a"), task("b", NEVER)]) == task("a")


def test_a_thread_waits_until_a_task_is_due(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    clock = SystemClock()
    at = clock.now() + timedelta(milliseconds=30)
    queue.create(task("a", at))

    waiting = threads.submit(queue.exchange, None, ())

    assert name_of(waiting) == "a"
    assert clock.now() >= at


def test_a_thread_that_waits_for_a_later_task_takes_an_earlier_one(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    queue.create(task("later", NEVER))
    (waiting,) = idle(queue, threads, 1)

    queue.create(task("now"))

    assert name_of(waiting) == "now"


def test_a_task_that_is_due_soon_is_heard_of_by_a_thread_that_waits_for_none(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    """It was created by a worker that has something better to do than to wait for it."""
    (waiting,) = idle(queue, threads, 1)
    soon = SystemClock().now() + timedelta(milliseconds=30)

    mine = queue.exchange(None, [task("now"), task("soon", soon)])

    assert mine == task("now")
    assert name_of(waiting) == "soon"


def test_a_baton_is_passed_while_tasks_are_due(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    """All of them come at once to one thread, which keeps the first and never asks again."""
    waiting = idle(queue, threads, 8)
    created = [task(str(number)) for number in range(9)]

    mine = queue.exchange(None, created)

    taken = [name_of(future) for future in waiting]
    assert mine is not None
    assert sorted([mine.name, *map(str, taken)]) == [str(number) for number in range(9)]


def test_no_task_is_left_or_doubled_in_a_storm(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    """Eight workers, each task owing two more until 2047 were delivered; two threads create too."""
    delivered: Counter[str] = Counter()
    noting = threading.Lock()
    all_done = threading.Event()

    def work() -> None:
        done: Task | None = None
        owed: list[Task] = []
        while done := queue.exchange(done, owed):
            with noting:
                delivered[done.name] += 1
                if delivered.total() == 2047 + 200:
                    all_done.set()
            place = int(done.name.removeprefix("x"))
            is_leaf = done.name.startswith("x") or place >= 1024
            soon = SystemClock().now() + timedelta(milliseconds=place % 3)
            owed = [] if is_leaf else [task(str(2 * place + side), soon) for side in (0, 1)]

    def create(first: int) -> None:
        for number in range(first, first + 100):
            queue.create(task(f"x{number}"))

    workers = [threads.submit(work) for _ in range(8)]
    creators = [threads.submit(create, first) for first in (0, 100)]
    queue.create(task("1"))

    assert all_done.wait(60)
    queue.close()
    for each in (*workers, *creators):
        each.result(timeout=60)
    assert set(delivered.values()) == {1}
    assert len(delivered) == 2247


def test_close_sends_all_threads_away(queue: InProcessTasks, threads: ThreadPoolExecutor) -> None:
    queue.create(task("later", NEVER))
    waiting = idle(queue, threads, 8)

    queue.close()

    assert [future.result(timeout=60) for future in waiting] == [None] * 8


def test_a_closed_queue_gives_nothing_more(queue: InProcessTasks) -> None:
    queue.create(task("a"))

    queue.close()

    assert queue.exchange(None, ()) is None


def test_a_reserved_worker_is_kept_for_its_task(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    (waiting,) = idle(queue, threads, 1)

    assert queue.reserve_worker()
    assert not queue.reserve_worker()  # there is no other one
    queue.create(task("due"))
    queue.end_reservation(task("its own", NEVER))

    assert name_of(waiting) == "its own"
    assert drained(queue) == ["due"]


def test_a_worker_that_was_reserved_for_nothing_takes_what_is_due(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    (waiting,) = idle(queue, threads, 1)
    assert queue.reserve_worker()
    queue.create(task("due"))

    queue.end_reservation(None)

    assert name_of(waiting) == "due"


def test_a_reserved_worker_gets_its_task_from_a_queue_that_was_closed_meanwhile(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    """The run has begun under the worker's lease, which it is to release."""
    workers = idle(queue, threads, 2)
    assert queue.reserve_worker()

    queue.close()
    queue.end_reservation(task("a"))

    assert {name_of(worker) for worker in workers} == {"a", None}
    assert not queue.reserve_worker()


def test_no_worker_is_reserved_where_none_is_idle_or_tasks_wait_for_all(
    queue: InProcessTasks, threads: ThreadPoolExecutor
) -> None:
    assert not queue.reserve_worker()
    idle(queue, threads, 1)

    queue.create(task("later", NEVER))

    assert not queue.reserve_worker()
