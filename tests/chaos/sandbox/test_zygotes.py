"""Zygotes: a module is imported once, and no attempt waits for that or is harmed by it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.worker.sandbox.forking import children as children_module
from leasehold.worker.sandbox.forking.child import Child, Ending
from leasehold.worker.sandbox.forking.children import Children
from leasehold.worker.sandbox.forking.memory import own_children
from tests.chaos.sandbox import programs
from tests.chaos.sandbox.conftest import descriptors, ending_of, is_gone
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until

_WAITS = f"{programs.__name__}:wait"

#: The name of a module that does so when it is imported, and the children that may be opened.
Write = Callable[[str], str]

_SAYS_WHO_IMPORTED_IT = """
import os
IMPORTED_BY = os.getpid()
def say(call):
    call.sendall(f"{IMPORTED_BY} {os.getppid()}".encode())
def wait(call):
    call.sendall(b"r")
    call.recv(1)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Write:
    """Writes a module, which does something and then says who imported it."""
    monkeypatch.syspath_prepend(tmp_path)

    def write_it(does: str) -> str:
        name = f"module_of_{os.getpid()}_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(does + _SAYS_WHO_IMPORTED_IT, encoding="utf-8")
        return name

    return write_it


def _open(children: Children, module: str, name: str = "say") -> Child:
    child = children.open(f"{module}:{name}", wait=programs.never, within=60)
    child.call.settimeout(60)
    return child


def _who_imported(children: Children, module: str) -> tuple[int, int, int]:
    """Return who imported the module that a new child has, who forked the child, and its pid."""
    with closing(_open(children, module)) as child:
        importer, parent = map(int, child.call.recv(100).split())
        return importer, parent, child.pid


def _zygote(children: Children, module: str) -> int:
    """Have a module imported by a zygote; return its pid when children are forked from it."""

    def forked() -> int:
        children.note_fit(module)
        importer, parent, _ = _who_imported(children, module)
        return parent if importer == parent else 0

    return until(forked, 60)


def test_a_module_is_imported_by_each_child_until_it_is_known_to_be_fit(
    children: Children, write: Write
) -> None:
    module = write("")

    importer, _, child = _who_imported(children, module)

    assert importer == child


def test_a_module_that_is_fit_is_imported_once(children: Children, write: Write) -> None:
    module = write("import sys\nif not hasattr(sys, 'of_a_child'): print('x' * 1_000_000)")

    zygote = _zygote(children, module)

    assert [_who_imported(children, module)[:2] for _ in range(3)] == 3 * [(zygote, zygote)]


@pytest.mark.parametrize(
    "does",
    [
        "raise SystemExit",
        "import os; os._exit(0)",
        "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
        "import socket; connection = socket.socketpair()",
        "import os; os.closerange(3, 1000)",
    ],
)
def test_a_module_that_cannot_be_forked_costs_no_attempt(
    children: Children, write: Write, does: str
) -> None:
    module = write(f"import sys\nif not hasattr(sys, 'of_a_child'): {does}")
    children.note_fit(module)

    until(lambda: _has_forgotten(children, module), 60)

    importer, _, child = _who_imported(children, module)
    assert importer == child


def test_a_module_that_fails_again_and_again_is_tried_three_times(
    children: Children, write: Write, tmp_path: Path
) -> None:
    tries = tmp_path / "tries"
    module = write(
        f"import sys\nif not hasattr(sys, 'of_a_child'): open({str(tries)!r}, 'a').write('x'); 1/0"
    )

    for _ in range(5):
        children.note_fit(module)
        until(lambda: _has_forgotten(children, module), 60)

    assert tries.read_text(encoding="ascii") == "xxx"


def test_a_zygote_that_hangs_delays_nothing(children: Children, write: Write) -> None:
    module = write("import sys\nif not hasattr(sys, 'of_a_child'):\n    while True: pass")
    children.note_fit(module)

    importers = [_who_imported(children, module) for _ in range(3)]

    assert all(importer == child for importer, _, child in importers)


def test_a_zygote_that_hangs_ends_although_no_attempt_asks_for_its_module_again(
    write: Write, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    module = write(f"import pathlib\npathlib.Path({str(begun)!r}).touch()\nwhile True: pass")
    with closing(Children(programs.ENTRY, load_s=0.2)) as children:
        with closing(children.open(_WAITS, wait=programs.never, within=60)) as child:
            server = parent_of(child.pid)

        children.note_fit(module)

        until(begun.exists)
        until(lambda: not own_children(server))


def test_a_zygote_that_hangs_later_is_replaced_and_its_children_end_their_work(
    impatient_children: Children, write: Write
) -> None:
    children = impatient_children
    module = write("")
    zygote = _zygote(children, module)
    child = _open(children, module, "wait")
    child.call.recv(1)
    os.kill(zygote, signal.SIGSTOP)

    importer, _, other = _who_imported(children, module)

    assert importer == other
    assert child.ending() is None
    assert not is_gone(zygote)
    child.close()
    until(lambda: is_gone(zygote))


def test_a_zygote_that_is_killed_takes_its_children_along_and_is_replaced(
    children: Children, write: Write
) -> None:
    module = write("")
    zygote = _zygote(children, module)
    child = _open(children, module, "wait")
    child.call.recv(1)

    os.kill(zygote, signal.SIGKILL)

    assert ending_of(child) == Ending()
    child.close()
    until(lambda: is_gone(child.pid))
    importer, _, other = _who_imported(children, module)
    assert importer == other
    assert _zygote(children, module) != zygote


def test_the_zygote_that_was_used_longest_ago_makes_room(
    children: Children, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children_module, "_MAX_ZYGOTES", 4)
    before = descriptors()
    first, second = (_zygote(children, module) for module in (write(""), write("")))

    for _ in range(3):
        children.note_fit(write(""))

    until(lambda: is_gone(first))
    assert not is_gone(second)
    children.close()
    assert is_gone(second)
    assert descriptors() == before


def _has_forgotten(children: Children, module: str) -> bool:
    return children._ready_zygote(module) is None and module not in children._zygotes  # noqa: SLF001
