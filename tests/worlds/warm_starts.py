"""Python processes that tests start, forked from one that has imported what they need.

Most of the time of a start goes into imports, and hundreds of tests start `python -m leasehold`,
the server of a function or a process of `multiprocessing`. Here `subprocess` and `multiprocessing`
have such a process forked by a *zygote*, a process that imported once. What is forked is as real as
what is started: a child of the process that asked, with a pid, an environment, descriptors, a
folder, signals and its own end, at which Python's memory is left to the system.

Whatever differs in something that Python reads when it starts is started as ever: other programs
and options, variables of Python, a folder with modules of the same names. So is everything in a
test that is marked `cold`, as it is about starting. Only Linux has what this needs.

A process of tests, and what it forks, reads the sources of this repository once: a catalog of tests
is in the package `tests`, so each engine and each process would read all files of the repository.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.machinery
import inspect
import io
import json
import logging
import multiprocessing.util
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from leasehold.domain import stored
from leasehold.domain.announcement import Announcement
from leasehold.domain.breaker import Breaker
from leasehold.domain.checkpoint import Checkpoint
from leasehold.domain.delivery import Delivery
from leasehold.domain.ledger import LedgerEntry
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Dispatch, Progress, TrialRecord
from leasehold.domain.summary import RunHead
from leasehold.domain.trace import TraceEvent
from leasehold.worker.sandbox.forking import project_sources
from leasehold.worker.sandbox.forking.forker import MARK
from leasehold.worker.sandbox.forking.project_sources import ProjectSources

#: What is forked: `python -m` one of these.
PROGRAMS: Final = (
    *("leasehold", "leasehold.devserver.server_main", "functions_framework"),
    *("examples.demo.run", "tests.unit.worker.hearing"),
    *("bench.agents", "bench.at_scale", "bench.peers.each_leasehold"),
    "tests.integrations.pydantic_ai.library_server",
)
#: And these words, as most users have no plugins: pytest would load some that are imported already.
PLAIN_PYTEST: Final = ("-m", "pytest", "--disable-plugin-autoload")
#: These words begin a command that starts further processes: it has a zygote of its own.
_STARTS_MORE: Final = (["leasehold", "dev"], ["examples.demo.run"])
#: So does one with these, where handlers run in processes of their own.
_HAS_SANDBOX: Final = (["leasehold", "start"], ["leasehold", "serve"])
#: Then each worker of the server of this function has one, as it has a fork server.
_RUNS_STEPS: Final = ["--target", "execute_step"]
#: A program with this line is the fork server of a sandbox: it is forked as well.
_FORK_SERVER: Final = "; from leasehold.worker.sandbox.forking.fork_server import main; "
#: So does the program of a process of `multiprocessing` begin that is to share nothing.
_SPAWNED: Final = (
    "from multiprocessing.spawn import spawn_main; ",
    "from multiprocessing.forkserver import main; ",
)
#: Where its variables begin and end in memory, among the fields of /proc/PID/stat.
_ENVIRON: Final = slice(47, 49)

#: What the system calls a zygote, which is a child as well.
NAME: Final = "zygote"

#: Packages that are not imported before: few processes need them, and to import some has effects.
_LATER: Final = frozenset(
    {"child", "deploy", "doctor", "functions", "integrations", "live", "testing"}
)
#: Clients that an adapter imports when it is used, each half a second.
_CLIENTS: Final = ("google.cloud.tasks_v2",)
#: Stored values whose model a process makes when it reads the first of them: half of a command.
_READ: Final = (
    *(Manifest, TrialRecord, RunHead, Delivery),
    *(LedgerEntry, Dispatch, Progress, TraceEvent, Breaker, Announcement, Checkpoint),
)

#: Variables that are applied after a fork; any other of these groups has a process started.
_APPLIED: Final = frozenset(
    {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8"}
)
_READ_AT_START: Final = ("PYTHON", "LD_", "MALLOC_", "COVERAGE_", "GRPC_ENABLE_FORK_SUPPORT")
#: The first of these that is set says what text is; as it is in all of these places, it is UTF-8.
_LOCALE: Final = ("LC_ALL", "LC_CTYPE", "LANG")
_PLAIN_LOCALES: Final = frozenset({"", "C", "POSIX", "C.UTF-8", "C.utf8", "UTF-8"})
#: A file with another suffix is not a module, whatever its name: `time.txt`.
_SUFFIXES: Final = frozenset(importlib.machinery.all_suffixes())
#: Where a process may start as it likes, whatever it imports.
_START_FILES: Final = frozenset({"sitecustomize", "usercustomize"})

_ROOT: Final = Path(__file__).parents[2]
#: The packages of this repository beside the product: a process imports its own of these.
_HERE: Final = frozenset(path.stem for path in _ROOT.iterdir())
_CLONE: Final = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
_CLONE_PARENT: Final = 0x00008000
_CLONE_CHILD_SETTID: Final = 0x01000000
_LARGE: Final = 2 << 20
_MADV_COLLAPSE: Final = 25
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_SCM_MAX_FD: Final = 253
#: Descriptors that were sent are kept up here until each gets its number.
_KEPT_FROM: Final = 400
_SIZE: Final = struct.Struct("!I")

_execute_child: Final = subprocess.Popen._execute_child  # type: ignore[attr-defined] # noqa: SLF001
_spawn: Final = multiprocessing.util.spawnv_passfds  # type: ignore[attr-defined]


class Zygote(NamedTuple):
    """The process that forks for this one, as this one sees it.

    Args:
        control: it reads requests there.
        modules: the files of the packages that it has imported, by name.
        owner: the process that the forked ones are children of.
        process: the zygote itself, where it was started.
    """

    control: socket.socket
    modules: Mapping[str, str]
    owner: int
    process: subprocess.Popen[bytes] | None = None


class _State:
    """The knowledge of a process that may ask for forks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.zygote: Zygote | None = None
        self.modules: Mapping[str, str] = {}
        self.is_cold = False
        self.has_read = False
        self.is_in_program = True
        self.kept: list[object] = []


_STATE = _State()


# -- in the process that starts others -------------------------------------------------------------


@contextlib.contextmanager
def warm_starts(*, at_once: bool = False) -> Iterator[None]:
    """Have processes forked, while inside, where that makes no difference to them.

    Args:
        at_once: import what they need now; else the first of them waits for it.
    """
    read_sources_once()
    with contextlib.ExitStack() as stack:
        if sys.platform == "linux" and _CLONE is not None:
            subprocess.Popen._execute_child = _fork_or_execute  # type: ignore[attr-defined] # noqa: SLF001
            stack.callback(setattr, subprocess.Popen, "_execute_child", _execute_child)
            multiprocessing.util.spawnv_passfds = _fork_or_spawn  # type: ignore[attr-defined]
            stack.callback(setattr, multiprocessing.util, "spawnv_passfds", _spawn)
            stack.callback(_end_zygote)
            if at_once:
                _zygote()
        yield


def fork_from_here() -> None:
    """Have processes forked from this one as it is now: it has imported what they need.

    Returns:
        In this process only; the others undo what it did beside its imports.
    """
    if sys.platform != "linux" or _CLONE is None:
        return
    _read_what_each_process_does()
    _check_fit_to_fork()
    _STATE.modules = _top_modules()
    zygote, asked = _own_zygote(())
    if asked is None:
        _STATE.zygote = zygote
        return
    try:
        _undo_tests()
        asked.become()
    except BaseException as error:  # noqa: BLE001 - below this are the tests, and none is to go on
        sys.excepthook(type(error), error, error.__traceback__)
    _end(1)


def _fork_from_workers() -> None:
    """Have each process that this one forks from here on fork what it starts.

    It is a worker of a server then, and what it starts has nothing of the server but its imports.
    """
    register, names = os.register_at_fork, frozenset(sys.modules)

    def register_for_program(**hooks: Callable[[], object]) -> None:
        register(**{when: _in_program(call) for when, call in hooks.items()})

    def have_zygote() -> None:
        if not _STATE.is_in_program:
            return
        _STATE.zygote, asked = _own_zygote((), alone=True)
        if asked is None:
            subprocess.Popen._execute_child = _fork_or_execute  # type: ignore[attr-defined] # noqa: SLF001
            return
        try:
            os.register_at_fork = register
            _undo_program(names)
            asked.become()
        except BaseException as error:  # noqa: BLE001 - as in `fork_from_here`
            sys.excepthook(type(error), error, error.__traceback__)
        _end(1)

    register(after_in_child=have_zygote)
    os.register_at_fork = register_for_program


def _in_program(call: Callable[[], object]) -> Callable[[], None]:
    """Return what does that in forks of the program, and not in those of a fork server."""

    def hook() -> None:
        if _STATE.is_in_program:
            call()

    return hook


def _undo_program(names: frozenset[str]) -> None:
    """Have this process be as if its program had not begun; `names` are the modules from before.

    What is left of it is kept: a file or socket that was let go would close the number of another.
    """
    gc.freeze()
    _STATE.kept = [*logging.root.handlers, *sys.modules.values()]
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            plain = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, plain)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    atexit._clear()  # noqa: SLF001 - all that it would do is the program's
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    for name in [name for name in sys.modules if name not in names]:
        del sys.modules[name]
    gc.enable()


def _undo_tests() -> None:
    """Have this process be as if it had only imported: pytest began the tests in it."""
    logging.root.handlers.clear()
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    sys.meta_path[:] = [each for each in sys.meta_path if not hasattr(each, "mark_rewrite")]
    sys.path[:] = [place for place in sys.path if place not in ("", str(_ROOT))]
    _forget_this_repository()
    gc.enable()


@contextlib.contextmanager
def cold_starts() -> Iterator[None]:
    """Have processes started as ever while inside."""
    _STATE.is_cold = True
    try:
        yield
    finally:
        _STATE.is_cold = False


def is_zygote(pid: int) -> bool:
    """Return whether a process is there only to fork others."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == NAME
    except OSError:
        return False


_PARAMETERS: Final = inspect.signature(_execute_child)
#: What is passed on as it is, or makes no difference to a fork; all else has its plain value.
_TAKEN: Final = frozenset(
    {"self", "args", "executable", "close_fds", "pass_fds", "cwd", "env", "start_new_session"}
    | {"restore_signals", "startupinfo", "creationflags"}
    | {"p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"}
)
_PLAIN: Final = (None, False, (), -1)


def _fork_or_execute(*given: Any, **named: Any) -> None:
    """Do what `Popen._execute_child` does."""
    call = _PARAMETERS.bind(*given, **named).arguments
    if (request := _request(call)) is not None:
        process = call["self"]
        streams = [call["p2cread"], call["c2pwrite"], call["errwrite"]]
        kept = [number if number >= 0 else own for own, number in enumerate(streams)]
        if pid := _forked(request, kept):
            process.pid = pid
            process._child_created = True  # noqa: SLF001
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            process._close_pipe_fds(*(call[name] for name in pipes))  # noqa: SLF001
            return
    _execute_child(*given, **named)


def _fork_or_spawn(path: Any, words: Sequence[str], passed: Sequence[int]) -> int:
    """Do what `multiprocessing.util.spawnv_passfds` does."""
    if words[1] == "-B" and os.environ.get("PYTHONDONTWRITEBYTECODE"):  # the variable says it, too
        words = [words[0], *words[2:]]
    if words[1] == "-c" and words[2].startswith(_SPAWNED) and _is_utf8(_locale(os.environ)):
        request = _asked_for(words, Path.cwd(), os.environ, sorted(map(int, passed)))
        if pid := _forked(request, [0, 1, 2]):
            return pid
    return int(_spawn(path, words, passed))


def _forked(request: Mapping[str, Any], streams: Sequence[int]) -> int | None:
    """Return the process that is forked as asked; None: it is to be started."""
    if _STATE.is_cold:
        return None
    with _STATE.lock:
        zygote = _zygote()
        if zygote is None or not _is_unshadowed(request, zygote.modules):
            return None
        return _ask(zygote.control, request, [*streams, *request["pass_fds"]])


def _request(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is asked for, as it is sent; None: it is to be started."""
    words = call["args"]
    if isinstance(words, str | bytes | os.PathLike) or len(words := list(words)) < 3:
        return None
    if words[0] != sys.executable or not (
        (words[1] == "-m" and words[2] in PROGRAMS)
        or tuple(words[1:4]) == PLAIN_PYTEST
        or (words[1:3] == ["-P", "-c"] and _FORK_SERVER in words[3])
    ):
        return None
    if call["executable"] not in (None, words[0]) or not call["close_fds"]:
        return None
    others = [value for name, value in call.items() if name not in _TAKEN]
    if any(all(value != plain for plain in _PLAIN) for value in others):
        return None
    environ = dict(os.environ if call["env"] is None else call["env"])
    if _of_start(environ) != _of_start(os.environ) or not _is_utf8(_locale(environ)):
        return None
    place = call["cwd"] or Path.cwd()
    return _asked_for(words, place, environ, call["pass_fds"], call["start_new_session"])


def _asked_for(
    words: Sequence[Any],
    place: Any,
    environ: Mapping[str, str],
    passed: Sequence[int],
    new_session: object = False,
) -> dict[str, Any]:
    return {
        "argv": [os.fsdecode(word) for word in words],
        "cwd": os.fspath(place),
        "environ": dict(environ),
        "pass_fds": list(passed),
        "new_session": bool(new_session),
    }


def _of_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Python, or a library of C, reads when it starts."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_READ_AT_START) and name not in _APPLIED
    }


def _locale(environ: Mapping[str, str]) -> str:
    return next(filter(None, map(environ.get, _LOCALE)), "")


def _is_utf8(locale: str) -> bool:
    return locale in _PLAIN_LOCALES or locale.lower().replace("-", "").endswith(".utf8")


def _is_unshadowed(request: Mapping[str, Any], modules: Mapping[str, str]) -> bool:
    """Return whether the process would import the same files that the zygote has imported."""
    for place in _first_places(request):
        with contextlib.suppress(OSError):
            for name in os.listdir(place):  # noqa: PTH208 - names are enough
                stem, _, suffix = name.partition(".")
                if suffix and f".{suffix}" not in _SUFFIXES:
                    continue
                if stem in _START_FILES:
                    return False
                if stem in modules and not modules[stem].startswith(f"{Path(place, name)}"):
                    return False
    return True


def _first_places(request: Mapping[str, Any]) -> list[str]:
    """Return where the process looks for modules before it looks where the zygote did."""
    further = request["environ"].get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(request["cwd"], place)) for place in ("", *filter(None, further))]


def _ask(control: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    message = json.dumps(request).encode()
    socket.send_fds(control, [_SIZE.pack(len(message))], descriptors)
    control.sendall(message)
    return int(_SIZE.unpack(_read(control, _SIZE.size))[0])


def _zygote() -> Zygote | None:
    """Return the zygote of this process; the first call starts that of the tests."""
    zygote = _STATE.zygote
    if (
        zygote is None
        and not _STATE.is_cold
        and threading.current_thread() is threading.main_thread()  # it ends with who starts it
    ):
        zygote = _STATE.zygote = _started()
    return zygote if zygote is not None and zygote.owner == os.getpid() else None


def _started() -> Zygote:
    near, far = socket.socketpair()
    with far:
        program = f"from tests.worlds.warm_starts import main; main({far.fileno()})"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(far.fileno(),),
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
    return Zygote(near, json.loads(_read_message(near)), os.getpid(), process)


def _end_zygote() -> None:
    if (zygote := _STATE.zygote) is not None and zygote.process is not None:
        zygote.control.close()
        zygote.process.wait()
        _STATE.zygote = None


# -- in both ---------------------------------------------------------------------------------------


def read_sources_once() -> None:
    """Have this process read the packages of this repository once: no test changes them.

    Which packages a catalog names, and where they are, is found out each time.
    """
    if _STATE.has_read:
        return
    _STATE.has_read = True
    read = ProjectSources._of_modules.__func__  # type: ignore[attr-defined] # noqa: SLF001
    known: dict[tuple[tuple[str, ...], ...], ProjectSources] = {}

    def of_modules(cls: type[ProjectSources], modules: frozenset[str]) -> ProjectSources:
        packages = {module.partition(".")[0] for module in modules}
        names = sorted(packages - project_sources._NOT_THE_USERS)  # noqa: SLF001
        key = tuple((name, *project_sources._places_of(name)) for name in names)  # noqa: SLF001
        if any(Path(place).parent != _ROOT for _, *places in key for place in places):
            return read(cls, modules)  # type: ignore[no-any-return]
        if key not in known:
            known[key] = read(cls, modules)
        return cls(known[key].files, known[key].code_hash, modules)

    ProjectSources._of_modules = classmethod(of_modules)  # type: ignore[assignment] # noqa: SLF001


# -- in the zygote ---------------------------------------------------------------------------------


def main(control: int) -> None:
    """Fork at each request; in what is forked, run its program, and return at its end."""
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is not for this process
    gc.disable()  # next to nothing that an import makes is ever let go
    _STATE.modules = _import_all()
    _forget_this_repository()
    sys.path_importer_cache.clear()  # here, as memory that a process lets go is copied for it first
    gc.freeze()
    gc.enable()
    _use_large_pages()
    asker = socket.socket(fileno=control)
    _send_message(asker, json.dumps(_STATE.modules).encode())
    asked = _serve(asker)
    signal.signal(signal.SIGINT, interrupted)
    asked.become()


class Asked(NamedTuple):
    """What is asked of a forked process: what it is to be, and its descriptors."""

    request: Mapping[str, Any]
    descriptors: Sequence[int]

    def become(self) -> None:
        """Be what was asked for."""
        request = self.request
        option, program, *words = request["argv"][1:]
        if is_fork_server := option == "-P":
            option, program, words = program, words[0], words[1:]
        if request["new_session"]:
            os.setsid()
        zygote = None
        environ = request["environ"]
        if _starts_more(environ, program, words):
            zygote, asked = _own_zygote(self.descriptors)
            if asked is not None:
                asked.become()
                return
        _move_notes_up()
        _place(self.descriptors, [0, 1, 2, *request["pass_fds"]])
        if zygote is not None:
            _STATE.zygote = zygote
            subprocess.Popen._execute_child = _fork_or_execute  # type: ignore[attr-defined] # noqa: SLF001
        sys.argv[:] = [option, *words]
        _begin_as_asked(request)
        if _is_sandboxed(environ) and words[1:3] == _RUNS_STEPS:
            _fork_from_workers()
        if is_fork_server:
            _show_mark(environ[MARK])
        try:
            if option == "-c":
                exec(program, {"__name__": "__main__"})  # noqa: S102 - as `python -c`
                _end(None)
            runpy._run_module_as_main(program)  # type: ignore[attr-defined] # noqa: SLF001 - as `python -m`
        except SystemExit as ended:
            _end(ended.code)
        _end(None)


def _begin_as_asked(request: Mapping[str, Any]) -> None:
    """Be where Python would be once it has started, but for what is imported."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv[:] = request["argv"]
    sys.path[:0] = _first_places(request)
    sys.path_importer_cache.clear()
    _open_streams()


def _forget_this_repository() -> None:
    """Have a process import its own of these modules; before a fork, as it reads all names."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _HERE]:
        del sys.modules[name]


def _starts_more(environ: Mapping[str, str], program: str, words: Sequence[str]) -> bool:
    """Return whether a process will ask for further ones to be forked."""
    begins = (*_STARTS_MORE, *_HAS_SANDBOX) if _is_sandboxed(environ) else _STARTS_MORE
    return any([program, *words][: len(begin)] == begin for begin in begins)


def _is_sandboxed(environ: Mapping[str, str]) -> bool:
    return environ.get("LEASEHOLD_ISOLATION") != "inline"


def _end(code: object) -> NoReturn:
    """End as Python does, but leave its memory to the system.

    To take apart all that the zygote imported copies its memory first: twice what a command costs.
    """
    if not (code is None or isinstance(code, int)):
        sys.stderr.write(f"{code}\n")
    number = code if isinstance(code, int) else int(code is not None)
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # Python has words and a code for it
        sys.exit(number)
    os._exit(number)


def _show_mark(mark: str) -> None:
    """Have the system show it as the first variable that this process was started with.

    A worker finds by it the processes that are left. The variables that count are elsewhere by now.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, fields[_ENVIRON])
    text = f"{MARK}={mark}\0".encode()
    assert len(text) <= end - start, "this process was started with next to no variables"
    ctypes.memmove(start, text, len(text))


def _own_zygote(
    descriptors: Sequence[int], *, alone: bool = False
) -> tuple[Zygote | None, Asked | None]:
    """Fork a zygote of this process; return it, and in what that forks what it is asked for.

    Args:
        descriptors: those that it closes.
        alone: it closes all but its streams, and begins the life of another program.
    """
    near, far = socket.socketpair()
    owner, is_in_program = os.getpid(), _STATE.is_in_program
    _STATE.is_in_program = is_in_program and not alone
    if os.fork():
        _STATE.is_in_program = is_in_program
        far.close()
        return Zygote(near, _STATE.modules, owner), None
    near.close()
    if alone:
        provider = importlib.import_module("leasehold.web.engine_provider")
        notes = provider.SHUTDOWN._notes  # noqa: SLF001 - each fork of this process closes its two
        first, *others = sorted({far.fileno(), notes._read_end, notes._write_end})  # noqa: SLF001
        os.closerange(3, first)
        for before, after in pairwise([first, *others, _KEPT_FROM]):
            os.closerange(before + 1, after)
    for descriptor in descriptors:
        os.close(descriptor)
    return None, _serve(far)


def _serve(control: socket.socket) -> Asked:
    """Fork at each request; return in each process that is forked, and only there."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_NAME, NAME.encode())
    while True:
        sizes, descriptors, _, _ = socket.recv_fds(control, _SIZE.size, _SCM_MAX_FD)
        if not sizes:
            os._exit(0)
        request = json.loads(_read(control, *_SIZE.unpack(sizes)))
        pid = _fork_sibling()
        if pid == 0:
            control.close()
            libc.prctl(_PR_SET_NAME, b"python")
            return Asked(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(_SIZE.pack(pid))


def _import_all() -> dict[str, str]:
    """Import what the programs may need; return the files of all packages that are there then."""
    sys.path[0] = str(_ROOT / "shared")
    for path in sorted((_ROOT / "shared" / "leasehold").rglob("*.py")):
        *above, last = path.relative_to(_ROOT / "shared").with_suffix("").parts
        name = ".".join([*above, last]).removesuffix(".__init__")
        if (
            name not in PROGRAMS[1:]
            and last != "__main__"
            and name.replace(".", "").isidentifier()
            and not _LATER.intersection(name.split("."))
        ):
            importlib.import_module(name)
    # A process of `multiprocessing` has the main module of the one that starts it.
    for name in ("functions_framework._cli", "pytest", *_CLIENTS):
        importlib.import_module(name)
    environment = Path(sys.prefix).name
    if (_ROOT / "tests/integrations" / environment / "requirements.txt").exists():
        importlib.import_module(f"leasehold.integrations.{environment}")  # takes most of a start
    sys.path[0] = str(_ROOT)
    _read_what_each_process_does()
    del sys.path[0]
    _check_fit_to_fork()
    assert not logging.root.handlers, "each process sets up its own"
    return _top_modules()


def _use_large_pages() -> None:
    """Have the memory of this process in pages of 2 MB, as far as the system can: it forks faster.

    To copy the table of small pages takes half of a fork.
    """
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, _, _, _, *name = line.split()
        if access == "rw-p" and name in ([], ["[heap]"]):
            start, end = (int(each, 16) for each in place.split("-"))
            for page in range(-(-start // _LARGE) * _LARGE, end - _LARGE + 1, _LARGE):
                libc.madvise(ctypes.c_void_p(page), ctypes.c_size_t(_LARGE), _MADV_COLLAPSE)


def _read_what_each_process_does() -> None:
    for kind in _READ:
        stored._adapter(kind)  # noqa: SLF001
    read_sources_once()
    ProjectSources._of_modules(frozenset({"tests"}))  # noqa: SLF001


def _check_fit_to_fork() -> None:
    assert len(os.listdir("/proc/self/task")) == 1, "threads, as of gRPC, are not forked"  # noqa: PTH208


def _top_modules() -> dict[str, str]:
    return {
        name: getattr(module, "__file__", None) or ""
        for name, module in list(sys.modules.items())
        if "." not in name and name not in (*_HERE, "__main__")
    }


def _fork_sibling() -> int:
    """Fork a process that is a child of this one's parent; return its pid, and 0 in it."""
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | signal.SIGCHLD
    own = _where_the_thread_id_is()  # the C library keeps it, and has to know the new one
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(ctypes.PyDLL(None).syscall(_CLONE, flags, 0, 0, own, own))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    assert pid >= 0, "it cannot be forked"
    return pid


def _where_the_thread_id_is() -> ctypes.c_void_p:
    """Return where the C library keeps the id of this thread, as `fork` itself does."""
    thread = threading.get_ident()
    words = (ctypes.c_uint32 * 512).from_address(thread)
    return ctypes.c_void_p(thread + 4 * list(words).index(threading.get_native_id()))


def _move_notes_up() -> None:
    """Have the pipe of signals, which each fork closes, where no given descriptor comes to lie."""
    if (provider := sys.modules.get("leasehold.web.engine_provider")) is None:
        return
    notes = provider.SHUTDOWN._notes  # noqa: SLF001 - a process that is started has none yet
    for end in ("_read_end", "_write_end"):
        low = getattr(notes, end)
        setattr(notes, end, fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _KEPT_FROM))
        os.close(low)


def _place(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the descriptors these numbers, which others of them may have now."""
    kept = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _KEPT_FROM) for one in descriptors]
    for one in descriptors:
        os.close(one)
    for one, number in zip(kept, numbers, strict=True):
        os.dup2(one, number)
        os.close(one)


def _open_streams() -> None:
    """Have text streams for what the first descriptors are now, as Python makes them."""
    is_plain = os.environ.get("PYTHONUTF8") == "1" or _locale(os.environ) in _PLAIN_LOCALES
    strict = "surrogateescape" if is_plain else "strict"
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors=strict, closefd=False)  # type: ignore[misc]
    for number, name, errors in ((1, "stdout", strict), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding="utf-8",
            errors=errors,
            line_buffering=number == 2 or raw.isatty(),
            write_through=bool(os.environ.get("PYTHONUNBUFFERED")),
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


# -- between them ----------------------------------------------------------------------------------


def _send_message(control: socket.socket, message: bytes) -> None:
    control.sendall(_SIZE.pack(len(message)) + message)


def _read_message(control: socket.socket) -> bytes:
    return _read(control, *_SIZE.unpack(_read(control, _SIZE.size)))


def _read(control: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = control.recv(size - len(read))
        assert part, "the zygote is gone"
        read += part
    return read
