"""How much memory a process takes, by what its system tells: Linux, gVisor, or nothing at all."""

from __future__ import annotations

import mmap
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from leasehold.worker.sandbox.forking.memory import own_bytes
from tests.worlds.shell import Shell

KIB, MIB = 1024, 2**20
MINE = Path("/proc/self")

#: Of a process in gVisor (runsc 20221219), which is the first-generation environment of Cloud Run.
STATUS_IN_GVISOR = """\
Name:	python3.11
State:	R (running)
Groups:	  
VmSize:	26708 kB
VmRSS:	19984 kB
VmData:	7488 kB
Threads:	1
"""  # noqa: W291 - as it is
SMAPS_IN_GVISOR = """\
00aca000-00b3a000 rw-p 00000000 00:00 0                                  [heap]
Size:                448 kB
Rss:                 448 kB
Pss:                 448 kB
Anonymous:           448 kB
AnonHugePages:         0 kB
VmFlags: rd wr mr mw me ac
7f179bc00000-7f179bedd000 rw-p 00000000 00:00 0
Rss:                2932 kB
Anonymous:          2932 kB
7f179bf71000-7f179c15a000 rw-s 00000000 00:04 2                          /dev/zero (deleted)
Rss:                1956 kB
Anonymous:             0 kB
VmFlags: rd wr sh mr mw me ms
7f179c448000-7f179c59e000 r-xp 00026000 00:0e 185                        /usr/lib/libc.so.6
Rss:                1368 kB
Anonymous:             0 kB
7f179c730000-7f179c737000 r--s 00000000 00:0e 194                        /usr/lib/gconv.cache
Rss:                  28 kB
Anonymous:             0 kB
"""

LETTERS = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

def eat(_ctx, most_mib):
    eaten = []
    while len(eaten) < most_mib:
        eaten.append(b"x" * 2**20)
    return "eaten"

STEPS = Registry("dispatch", [
    StepDispatchEntry(
        step_type="eat",
        handler="letters:eat",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        memory_limit=128 * 2**20,
        reuse=2,
        max_retries=0,
    ),
])
PIPELINES = Registry("pipelines", [PipelineEntry(name="letters", steps=("eat",))])
"""


def nothing() -> str:
    return ""


def test_linux_tells_in_its_status_what_the_mappings_come_to() -> None:
    """With memory that processes share, and with files that are none of it."""
    shared = mmap.mmap(-1, 20 * MIB)
    shared.write(b"x" * (20 * MIB))
    own = bytearray(b"x") * (30 * MIB)
    status, smaps = (MINE / "status").read_text(), (MINE / "smaps").read_text()

    by_status = own_bytes(status, nothing)
    by_mappings = own_bytes("", lambda: smaps)

    assert by_status > 50 * MIB
    assert abs(by_status - by_mappings) < MIB
    shared.close()
    del own


def test_what_is_swapped_out_is_taken_all_the_same() -> None:
    """Else a step that eats all memory would be held to its limit only while there is no swap."""
    status = "VmRSS:\t   900 kB\nRssAnon:\t   10 kB\nRssShmem:\t   2 kB\nVmSwap:\t    500 kB\n"

    assert own_bytes(status, nothing) == 512 * KIB


def test_what_gvisor_tells_are_mappings_alone() -> None:
    own = own_bytes(STATUS_IN_GVISOR, lambda: SMAPS_IN_GVISOR)

    assert own == (448 + 2932 + 1956) * KIB


def test_a_process_whose_mappings_cannot_be_read_has_its_resident_pages() -> None:
    assert own_bytes(STATUS_IN_GVISOR, nothing) == 19984 * KIB


def test_a_process_that_is_gone_takes_nothing() -> None:
    """A zombie has a status without sizes."""
    assert own_bytes("Name:\tpython3\nState:\tZ (zombie)\n", nothing) == 0
    assert own_bytes("", nothing) == 0


def test_no_name_that_a_handler_chooses_breaks_the_reading() -> None:
    odd = SMAPS_IN_GVISOR.replace("/dev/zero (deleted)", "/memfd:a\x0c\x1c\x85 \\012Rss:")
    status = STATUS_IN_GVISOR.replace("python3.11", "x\nVmRSS: many")

    assert own_bytes(status, lambda: odd) == (448 + 2932 + 1956) * KIB
    assert own_bytes(status, nothing) == 19984 * KIB


# -- elsewhere -----------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "letters.py").write_text(LETTERS)
    return Shell(tmp_path, {"LEASEHOLD_CATALOG": "letters"})


def run_in(
    place: Sequence[str], shell: Shell, *words: str, expects: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*place, sys.executable, "-m", "leasehold", *words],
        cwd=shell.folder,
        env=shell.settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expects, done.stdout + done.stderr
    return done


#: A place of its own, in which `/proc` is empty.
WITHOUT_PROC = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs none /proc && exec "$@"',
    "sh",
)


def can_be_without_proc() -> bool:
    if shutil.which("unshare") is None:
        return False
    words = [*WITHOUT_PROC, "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_be_without_proc(), reason="no mount namespace is to be had here")
def test_where_no_memory_is_told_it_is_said_once_and_the_step_runs(shell: Shell) -> None:
    started = ("start", "letters", "--in-process", "--input", "1")

    runs = run_in(WITHOUT_PROC, shell, *started)
    found = run_in(WITHOUT_PROC, shell, "doctor")

    line = "this machine does not tell how much memory a process takes (/proc/PID/status, "
    assert runs.stderr.count("WARNING") == runs.stderr.count(line) == 1
    assert "no step is held to its memory_limit here" in runs.stderr
    assert "COMPLETED" in runs.stdout
    of_reuse, of_memory = found.stderr.splitlines()[:2]
    assert of_reuse.startswith("warning: eat: each attempt has a fresh process here, whatever its ")
    assert of_memory.startswith("warning: eat: no step is held to its memory_limit here, as ")
    assert run_in((), shell, "doctor").stderr == ""


@pytest.mark.skipif(shutil.which("runsc") is None, reason="gVisor (runsc) is not installed")
def test_a_step_in_gvisor_is_held_to_its_memory_limit(shell: Shell) -> None:
    """The first-generation environment of Cloud Run is gVisor."""
    gvisor = ("runsc", "--rootless", "--network=none", "--platform=ptrace", "do")
    place = (*gvisor, "-cwd", str(shell.folder))

    run = run_in(place, shell, "start", "letters", "--in-process", "--input", "600", expects=1)

    assert "memory_limit_exceeded" in run.stdout + run.stderr
    assert "its limit is 128 MiB" in run.stdout + run.stderr
