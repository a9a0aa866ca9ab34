"""What holds for every test: where handlers run, what the gate leaves to the nightly job.

And how many examples a property is tried with: few and always the same in the gate, many and new
ones in a storm. `LEASEHOLD_STORM=1 pytest tests/properties` runs the storm; it takes minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from leasehold.attempt.stop import StopSignal
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.engines import local_engine, marked
from tests.worlds.warm_starts import cold_starts, warm_starts

#: Where handlers run in processes of their own, as in production; and in tests that are marked
#: `sandboxed`. The others are of something else, and run handlers inline: they patch what handlers
#: use, hold the clock, or would only start more processes.
SANDBOXED: Final = ("chaos/bundle", "chaos/sandbox", "docs", "package")

#: The client of Cloud Storage asks about its bucket, for traces, in a thread that tries for two
#: minutes: where none answers it outlives its test, and draws random numbers beside later ones.
_NO_LATE_THREADS: Final = "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"

#: The variables that pytest, or this file, sets for as long as a test runs.
_OF_ONE_TEST: Final = frozenset({"PYTEST_CURRENT_TEST", "LEASEHOLD_ISOLATION", _NO_LATE_THREADS})

#: The signals that the code under test handles.
_HANDLED: Final = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGALRM),
    *(signal.SIGCHLD, signal.SIGPIPE),
)

#: What a function wraps in its process.
_SET_HANDLER: Final = signal.signal

_TESTS: Final = Path(__file__).parent

#: The folders whose tests wait most, for processes or time, in the order in which they run: beside
#: them the others use the cores, and at the end there is nothing to wait for.
FIRST: Final = ("package", "chaos", "deploy", "api/server", "api/dashboard", "docs", "cli", "bench")

pytest_plugins = ["tests.worlds.forked_tests"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Have the handlers of a test run where they are to, in processes that it starts as well."""
    _surroundings_before(item.path)
    is_in_room = _place(item.path, SANDBOXED) < len(SANDBOXED)
    is_sandboxed = is_in_room or item.get_closest_marker("sandboxed")
    _forget_shutdowns()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEASEHOLD_ISOLATION", "" if is_sandboxed else "inline")
        patch.setenv(_NO_LATE_THREADS, "true")
        with cold_starts() if item.get_closest_marker("cold") else contextlib.nullcontext():
            return (yield)


def _forget_shutdowns() -> None:
    """Have the functions of this process serve: a test raised a signal, and the process goes on.

    And leave alone the handlers that are set from here on, as asyncio sets that of SIGINT.
    """
    provider = sys.modules.get("leasehold.web.engine_provider")
    if provider is not None:
        signal.signal, provider.SHUTDOWN._listens = _SET_HANDLER, False  # noqa: SLF001 - as below
        if provider.SHUTDOWN.shutdown_requested:
            provider.SHUTDOWN._stop = StopSignal()  # noqa: SLF001 - a process that serves ends then


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Fail the file whose tests leave something unclosed or changed, in each run.

    Else a test of another file fails that happens to run after it, on another machine, some day.
    """
    result = yield
    if nextitem is None or nextitem.path != item.path:
        getattr(item, "funcargs", {}).clear()  # nobody needs them any more
        left = unclosed()
        gc.freeze()  # what is left are modules and caches, and later collections leave them out
        assert not left, f"left unclosed by a test of this file: {left}"
        before, after = _surroundings_before(item.path), _surroundings()
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        assert not changed, f"left changed by a test of this file: {changed}"
    return result


@functools.lru_cache(maxsize=1)
def _surroundings_before(_file: Path) -> Mapping[str, object]:
    """Return the surroundings that the file that runs now has found."""
    return _surroundings()


def _surroundings() -> Mapping[str, object]:
    """Return what the tests of this process share with those that come after them, by name."""
    variables = {name: text for name, text in os.environ.items() if name not in _OF_ONE_TEST}
    handlers = {number.name: signal.getsignal(number) for number in _HANDLED}
    return {**variables, **handlers, "the working directory": os.stat(".").st_ino}  # noqa: PTH116


def unclosed() -> list[str]:
    """Collect garbage; return what it complains of."""
    left: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda it: left.append(f"{it.exc_value!r}"))
        gc.collect()
    return left


#: Where files of tests are kept in memory, on Linux, and how many bytes have to be free there.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder there that is its user's alone
_ENOUGH: Final = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of examples, and keep the files of tests in memory where there is enough.

    The tests would wait for a disk. Without its plugin, Hypothesis is not imported: it takes long.

    And have a pytest that a test starts do without the plugins of this environment, as it would in
    that of a user: to import them takes longer than all else that it does.
    """
    if config.pluginmanager.hasplugin("hypothesispytest"):
        _set_number_of_examples()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_MEMORY).free >= _ENOUGH and os.access(_MEMORY, os.W_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _set_number_of_examples() -> None:
    from hypothesis import settings  # noqa: PLC0415 - see where this is called

    settings.register_profile(
        "gate",
        max_examples=100,
        stateful_step_count=50,
        derandomize=True,
        deadline=None,
        database=None,
    )
    settings.register_profile(
        "storm",
        max_examples=int(os.environ.get("LEASEHOLD_STORM_EXAMPLES", "6000")),
        stateful_step_count=80,
        deadline=None,
        print_blob=True,
    )
    settings.load_profile("storm" if os.environ.get("LEASEHOLD_STORM") == "1" else "gate")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage beside the tests: next to nothing that is made then is ever let go."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before what -m leaves out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run first what waits most; leave to the nightly job what `cover(n)` does not need.

    The gate has each n values of the parameters of such a test together in one case at least.
    A test of `one_store` is in it with SQLite and a folder alone.
    """
    items.sort(key=lambda item: _place(item.path, FIRST))
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _is_of_another_store(item):
            item.add_marker("nightly")
        elif item.get_closest_marker("cover"):
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in matrices.values():
        mark = cases[0].get_closest_marker("cover")
        assert mark is not None
        wanted = {item: _together(item, *mark.args) for item in cases}
        left = set().union(*wanted.values())
        while left:
            best = max(cases, key=lambda item: len(wanted[item] & left))
            left -= wanted.pop(best)
            cases.remove(best)
        for item in wanted:
            item.add_marker("nightly")


def _is_of_another_store(item: pytest.Item) -> bool:
    """Return whether a store of the cloud would repeat a rule here that is of no store."""
    marks = (mark.name for mark in item.iter_markers() if mark.name.endswith("_store"))
    if next(marks, "each_store") == "each_store":  # the mark of a test goes over that of its file
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "firestore" in parameters or "cloud storage" in parameters


@functools.cache
def _place(file: Path, folders: tuple[str, ...]) -> int:
    """Return the number of the folder that a file of tests is in; that of all, if in none."""
    found = (file.is_relative_to(_TESTS / folder) for folder in folders)
    return next((number for number, is_in in enumerate(found) if is_in), len(folders))


def _together(item: pytest.Item, count: int) -> set[tuple[tuple[str, str], ...]]:
    """Return each so many values of the case, by the names of their parameters."""
    parameters = item.callspec.params  # type: ignore[attr-defined] # it is of a function
    values = sorted((name, repr(value)) for name, value in parameters.items())
    return set(itertools.combinations(values, count))


def pytest_collection_finish() -> None:
    """Leave the thousands of collected tests out of every garbage collection from here on.

    They stay to the end, and looking through them takes a quarter of a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _warm_starts(pytestconfig: pytest.Config) -> Iterator[None]:
    """Have no test wait for the imports in one of many processes: they take as many cores."""
    with warm_starts(at_once=pytestconfig.option.forks > 1):
        yield


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[..., Path]:
    """Makes a folder, or waits until another process of this session has made it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(pytestconfig, "workerinput") else base

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}-done"
        with (shared / f"{name}-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return once


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The settings of the engine of a test: what it stores lies in the test's own folder."""
    return environ_of(tmp_path)


@pytest.fixture
def clock() -> FrozenClock:
    """The clock of the engine of a test: the test moves it, or a handler that waits."""
    return FrozenClock(skips_waits=True)


@pytest.fixture
def engine(
    request: pytest.FixtureRequest, environ: dict[str, str], clock: FrozenClock
) -> Iterator[InProcessEngine]:
    """Runs what is due when the test says so, of the catalog of its mark, or of its settings."""
    catalog, settings = marked(request, environ.get("LEASEHOLD_CATALOG", "pipelines.catalog"))
    with local_engine(environ | settings, catalog, clock=clock) as engine:
        yield engine
