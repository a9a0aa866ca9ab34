"""The stacks that a process wrote, as a person reads them."""

from __future__ import annotations

import os
import selectors
from pathlib import Path

import pytest

from leasehold.worker.sandbox.child import handler_process, soft_limit
from leasehold.worker.sandbox.stacks import MAX_LIVE_STACKS_BYTES, Stacks

_OWN = Path(__file__)
_LINE = next(n for n, line in enumerate(_OWN.read_text().splitlines(), 1) if "_LINE = " in line)

_THREAD = """
Thread 0x00007f0000000001 (most recent call first):
  File "{own}", line 1 in in_a_thread
  File "/usr/lib/python3.11/threading.py", line 1 in _bootstrap
"""
_MAIN = """
Current thread 0x00007f0000000002 (most recent call first):
  File "{own}", line {line} in handler
  File "{soft_limit}", line 60 in _call
  File "{handler_process}", line 70 in run
  File "<string>", line 1 in <module>
"""


def stacks_of(text: str, own: str = "") -> Stacks:
    near, far = os.pipe()
    files = {"soft_limit": soft_limit.__file__, "handler_process": handler_process.__file__}
    files["selectors"] = selectors.__file__
    os.write(far, text.format(own=_OWN, line=_LINE, **files).encode())
    os.close(far)
    stacks = Stacks(near, own)
    stacks.read()
    os.close(near)
    return stacks


def test_the_handlers_own_thread_comes_first_and_the_engines_frames_are_cut() -> None:
    stacks = stacks_of(_THREAD + _MAIN)

    assert stacks.origin() == f"test_stacks.py:{_LINE} (handler)"
    lines = stacks.text().splitlines()
    assert lines[0] == "The thread of the handler (most recent call last):"
    assert lines[1].endswith(f'test_stacks.py", line {_LINE}, in handler')
    assert lines[2].startswith("    _LINE = next(")
    assert lines[3] == "Another thread of the handler (most recent call last):"
    assert any(line.endswith("in in_a_thread") for line in lines[4:])
    assert "soft_limit" not in stacks.text()


def test_the_line_of_an_installed_handler_is_told_and_not_that_of_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend("/venv/site-packages")
    calls = (("requests/api.py", 5, "get"), ("mine/steps.py", 9, "step"))
    text = "".join(
        f'  File "/venv/site-packages/{f}", line {n} in {name}\n' for f, n, name in calls
    )
    frames = _MAIN.splitlines(keepends=True)
    stacks = stacks_of("".join([*frames[:2], text, *frames[3:]]), own="mine")

    assert stacks.origin() == "steps.py:9 (step)"


def test_secrets_in_a_line_are_cut(tmp_path: Path) -> None:
    source = tmp_path / "own.py"
    source.write_text('connect(password="hunter22")\n')

    text = stacks_of(_MAIN.replace("{own}", str(source)).replace("{line}", "1")).text()

    assert "connect(password=[redacted])" in text


def test_a_special_file_is_not_read(tmp_path: Path) -> None:
    """A process can name any file; one that never ends must not be waited for."""
    os.mkfifo(tmp_path / "pipe.py")

    text = stacks_of(_MAIN.replace("{own}", str(tmp_path / "pipe.py"))).text()

    assert "in handler" in text


def test_a_text_that_is_not_a_stack_adds_nothing() -> None:
    for text in ("", "nonsense\n" * 100, "Thread 0x1 (most recent call first):\n  File"):
        assert stacks_of(text).text() == ""
        assert stacks_of(text).origin() is None


def test_the_most_recent_call_is_the_last_and_stays_when_there_are_many() -> None:
    calls = "".join(f'  File "{{own}}", line {n} in f{n}\n' for n in range(1, 200))

    lines = stacks_of(_THREAD.replace(_THREAD.splitlines()[2] + "\n", calls)).text().splitlines()

    assert lines[1] == "  [more left out]"
    assert [line.split()[-1] for line in lines if "File" in line][-2:] == ["f2", "f1"]


def test_threads_that_do_the_same_are_told_once() -> None:
    assert stacks_of(_THREAD * 3).text().count("in in_a_thread") == 1


def test_the_text_is_bounded() -> None:
    deep = "".join(
        _THREAD + "".join(f'  File "{_OWN}", line {n} in f\n' for n in range(thread, thread + 29))
        for thread in range(15)
    )

    assert 0 < len(stacks_of(_MAIN + deep).text().encode()) <= MAX_LIVE_STACKS_BYTES


def test_a_file_that_the_system_makes_up_is_not_read() -> None:
    """It may never end, as /proc/self/pagemap, or have what is the worker's alone."""
    text = stacks_of(_MAIN.replace("{own}", "/proc/self/environ").replace("{line}", "1")).text()

    assert text.splitlines()[1:] == ['  File "/proc/self/environ", line 1, in handler']


def test_calls_below_those_of_the_process_are_not_the_handlers() -> None:
    """A loop that waits has none of the handler on its stack: where that waits, its task says."""
    waiting = """
Current thread 0x00007f0000000002 (most recent call first):
  File "{selectors}", line 468 in select
  File "{handler_process}", line 70 in run
  File "{own}", line 1 in begins_the_process

Task (most recent call first):
  File "{own}", line 2 in awaits
"""
    stacks = stacks_of(waiting, own="tests")

    assert stacks.origin() == "test_stacks.py:2 (awaits)"
    assert "begins_the_process" not in stacks.text()
