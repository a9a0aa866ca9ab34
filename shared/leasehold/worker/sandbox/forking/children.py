"""The processes of a worker's attempts: forked when they are needed, from zygotes.

A zygote has imported the module of a handler, and its children need not.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from leasehold.domain.retry import doubling
from leasehold.errors import ForkServerError
from leasehold.ports.handler_runner import EnteredStep
from leasehold.worker.sandbox.forking.child import Child
from leasehold.worker.sandbox.forking.fork_server import READY
from leasehold.worker.sandbox.forking.forker import Forker, ForkServer, StoppedError
from leasehold.worker.sandbox.forking.source_finder import SourceText
from leasehold.worker.sandbox.wire.assignment import environment, working_directory

# Processes that wait for a further attempt of their step.


#: In all; the one that waits longest makes room.
_MAX_IDLE_PROCESSES: Final = 32
_IDLE_LOOK_EVERY_S: Final = 1.0


class Purpose(NamedTuple):
    """What a process is for: one step, in a worker that is as it was when the process was forked.

    The code is the same as long as the worker lives: it has read it once.
    """

    step_type: str
    handler: str
    entry_actions: tuple[str, ...]
    path: Sequence[str]
    environ: Mapping[bytes, bytes]
    cwd: str | None

    @classmethod
    def of(cls, step: EnteredStep) -> Self:
        """Return the purpose of a process that is forked for a step now."""
        return cls(
            step.step_type,
            step.handler,
            tuple(step.entry_actions),
            list(sys.path),
            environment(),
            working_directory(),
        )


class IdleChildren:
    """Keeps processes for a further attempt of their step. Any thread may call.

    Of a step they are never more than were at work at once: a new one is forked when none waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Purpose, Child]] = []
        self._look_at = 0.0

    def take(self, purpose: Purpose) -> Child | None:
        """Return a process for an attempt, the last one that came; None: a new one is needed."""
        while found := self._next(purpose):
            if _is_useful(found):
                return found
            found.close()
        return None

    def keep(self, purpose: Purpose, child: Child) -> None:
        """Keep a process whose attempt is over."""
        with self._lock:
            gone = self._useless()
            self._waiting.append((purpose, child))
            if len(self._waiting) > _MAX_IDLE_PROCESSES:
                gone.append(self._waiting.pop(0)[1])
        _close(gone)

    def end(self) -> None:
        """End all that wait."""
        with self._lock:
            gone, self._waiting = [child for _, child in self._waiting], []
        _close(gone)

    def _next(self, purpose: Purpose) -> Child | None:
        with self._lock:
            found = next((it for it in reversed(self._waiting) if it[0] == purpose), None)
            if found is None:
                return None
            self._waiting.remove(found)
            return found[1]

    def _useless(self) -> list[Child]:
        """Return those that are for no attempt any more; each look at one costs a moment."""
        if time.monotonic() < self._look_at:
            return []
        self._look_at = time.monotonic() + _IDLE_LOOK_EVERY_S
        gone = {child for _, child in self._waiting if not _is_useful(child)}
        self._waiting = [it for it in self._waiting if it[1] not in gone]
        return [*gone]


def _is_useful(child: Child) -> bool:
    return child.is_quiet and not child.is_outdated


def _close(children: Sequence[Child]) -> None:
    for child in children:
        child.close()


_MAX_ZYGOTES: Final = 16

#: A module that could not be imported so often is imported by each child itself.
_MAX_IMPORT_TRIES: Final = 3


class Zygote:
    """One zygote; it is looked at, never waited for."""

    def __init__(self, handlers: Sequence[str], server: Forker, load_s: float) -> None:
        self._server = server
        self._request = server.request(handlers, load_s=load_s)
        self._child: Child | None = None
        self._forker: Forker | None = None
        self._until = time.monotonic() + load_s

    def look(self) -> Forker | None:
        """Return it if it is ready; None: not yet.

        Raises:
            OSError: it never will be.
        """
        if self._forker is None and (child := self._imported()):
            self._forker = Forker(child.call, child.close)
            self._forker.has_answered = True  # it is up: it has said so
        if self._forker is None and time.monotonic() > self._until:
            raise TimeoutError
        return self._forker

    def retire(self) -> None:
        """End it, as soon as no child of it is left."""
        if self._forker is not None:
            self._forker.retire()
        else:
            self.end()

    def end(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.close()
        else:
            self._request.cancel()

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and nothing here is its own."""
        if self._child is None:
            self._request.cancel()
        elif self._forker is not None:
            self._forker.let_go()
            self._child.let_go()
        else:
            self._child.let_go()

    def _imported(self) -> Child | None:
        if self._child is None:
            self._child = self._server.answer(self._request, 0)
        if self._child is None:
            return None
        self._child.call.setblocking(False)
        try:
            said = self._child.call.recv(len(READY))
        except BlockingIOError:
            return None
        if said != READY:
            raise ConnectionResetError
        self._child.call.setblocking(True)
        return self._child


class Zygotes:
    """The zygotes of one fork server, by module. Its user keeps threads apart.

    Args:
        load_s: how long each may take to import its module, in seconds.
    """

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._zygotes: OrderedDict[str, Zygote] = OrderedDict()
        self._tries: Counter[str] = Counter()

    def __contains__(self, module: str) -> bool:
        return module in self._zygotes

    def open(self, module: str, handlers: Sequence[str], server: Forker) -> None:
        """Have handlers of a module loaded by a zygote, unless it has one, or failed too often.

        Raises:
            OSError: see ForkRequest.
        """
        if module in self._zygotes or self._tries[module] == _MAX_IMPORT_TRIES:
            return
        self._zygotes[module] = Zygote(handlers, server, self._load_s)
        self._tries[module] += 1
        if len(self._zygotes) > _MAX_ZYGOTES:
            _, oldest = self._zygotes.popitem(last=False)
            oldest.retire()

    def ready(self, module: str) -> Forker | None:
        """Return what forks from that module, or None."""
        zygote = self._zygotes.get(module)
        if zygote is None:
            return None
        try:
            forker = zygote.look()
        except OSError:
            self.drop(module)
            return None
        if forker is not None and forker.is_frozen:
            self.drop(module)
            return None
        if forker is not None:
            self._zygotes.move_to_end(module)
            self._tries[module] = 0
        return forker

    def drop(self, module: str) -> None:
        """Forget the zygote of a module; its children may end their work."""
        if zygote := self._zygotes.pop(module, None):
            zygote.retire()

    def retire(self) -> None:
        """Forget all; their children may end their work."""
        for module in list(self._zygotes):
            self.drop(module)

    def end(self) -> None:
        """End all."""
        for zygote in self._zygotes.values():
            zygote.end()
        self._zygotes.clear()

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and nothing here is its own."""
        for zygote in self._zygotes.values():
            zygote.let_go()
        self._zygotes.clear()


#: The module that children run: see `fork_server.Entry`.
ENTRY: Final = "leasehold.worker.sandbox.child.handler_process"

NO_SOURCES: Final[Mapping[str, SourceText]] = MappingProxyType({})

#: It may take a fork server so long to start, on a machine that has no time for it.
_START_TIMEOUT_S: Final = 60.0

#: The waits between two tries.
_WAITS: Final = doubling(timedelta(seconds=0.02), timedelta(seconds=1))


class Children:
    """Opens processes for attempts. Any thread may call.

    The fork server is started by the first call, and again when it has ended. A fork of the worker
    has none of its parent's and starts its own.

    Args:
        entry: the module that children run.
        handlers: all that may be called, `module:function`: what imports a module for all children
            loads those that are in it.
        sources: the project's own, as the worker read them: children import these.
        load_s: how long the import of a module for all children may take, in seconds.
        patience: seconds; a fork server that does not answer for this time is replaced.

    Attributes:
        idle: those that wait for a further attempt; where there is no room for a new one, they go.
    """

    def __init__(
        self,
        entry: str = ENTRY,
        *,
        handlers: Sequence[str] = (),
        sources: Mapping[str, SourceText] = NO_SOURCES,
        load_s: float = 60.0,
        patience: float = 5.0,
    ) -> None:
        self._entry = entry
        self._sources = sources
        self._load_s = load_s
        self._handlers = handlers
        self._patience = patience
        self.idle = IdleChildren()
        self._lock = threading.RLock()
        self._fork_server: ForkServer | None = None
        self._retired: list[ForkServer] = []
        self._zygotes = Zygotes(self._load_s)

    def open(self, handler: str, *, wait: Callable[[float], bool], within: float) -> Child:
        """Return a new process for an attempt.

        Args:
            handler: `module:function`.
            wait: waits so many seconds; True: the attempt is to stop.
            within: seconds; it is tried again until then.

        Raises:
            ForkServerError: there is no process to be had now, or the attempt is to stop.
        """
        until = time.monotonic() + within
        failures = 0
        while True:
            try:
                return self._fork(handler, wait, until)
            except StoppedError:
                raise ForkServerError(handler=handler, problem="the attempt is to stop") from None
            except OSError as error:
                self.idle.end()
                failures += 1
                problem = error.strerror or str(error)
                left, pause = until - time.monotonic(), _WAITS.wait_s(failures)
                if left < 2 * pause or wait(pause):
                    raise ForkServerError(handler=handler, problem=problem) from error

    def note_fit(self, handler: str) -> None:
        """Have a handler loaded once for all: a child has found that its module may be forked.

        It starts in the background. Until then, and if it fails, each child loads the handler.
        Only Linux kills what a process leaves behind that was forked by a forked one.
        """
        if sys.platform != "linux":
            return
        module = _module_of(handler)
        beside = [one for one in self._handlers if _module_of(one) == module and one != handler]
        with self._lock, suppress(OSError):
            self._zygotes.open(module, [handler, *beside], self._server())

    def import_all(self) -> None:
        """Have the modules of all handlers imported now, for the attempts to come.

        It runs in the background; errors of a module are reported by its attempts.
        """
        for handler in {_module_of(one): one for one in self._handlers}.values():
            self.note_fit(handler)

    def close(self) -> None:
        """End all processes. It may be used again: what is needed is started then."""
        self.idle.end()
        with self._lock:
            _with_processes.discard(self)
            servers = [*self._retired, *([self._fork_server] if self._fork_server else [])]
            self._fork_server, self._retired = None, []
            self._zygotes.end()
        for server in servers:
            server.end()

    def _fork(self, handler: str, wait: Callable[[float], bool], until: float) -> Child:
        module = _module_of(handler)
        if zygote := self._ready_zygote(module):
            try:
                return zygote.fork(handler, wait, self._give_up_at(zygote, until))
            except (TimeoutError, ConnectionError):  # it is frozen, or gone
                with self._lock:
                    self._zygotes.drop(module)
        with self._lock:
            server = self._server()
        give_up_at = self._give_up_at(server, until)
        try:
            return server.fork(handler, wait, give_up_at)
        except TimeoutError:
            if give_up_at < until:
                self._retire(server)
            raise

    def _give_up_at(self, forker: Forker, until: float) -> float:
        """Return when a request is not answered because what forks is frozen."""
        patience = self._patience if forker.has_answered else _START_TIMEOUT_S
        return min(until, time.monotonic() + patience)

    def _ready_zygote(self, module: str) -> Forker | None:
        with self._lock:
            self._server()  # if that is another one now, its zygotes are gone
            return self._zygotes.ready(module)

    def _server(self) -> ForkServer:
        """Return the fork server; a new one, if it has ended."""
        if self._fork_server is not None and self._fork_server.has_ended:
            self._zygotes.end()
            self._fork_server.end()
            self._fork_server = None
        if self._fork_server is not None and self._fork_server.is_frozen:
            self._retire(self._fork_server)
        if self._fork_server is None:
            self._fork_server = ForkServer(self._entry, self._sources)
            _with_processes.add(self)
        return self._fork_server

    def _retire(self, server: ForkServer) -> None:
        """Replace a fork server that does not answer; its children may end their work."""
        with self._lock:
            if self._fork_server is not server:
                return
            self._fork_server = None
            self._retired = [it for it in self._retired if not it.has_ended] + [server]
            zygotes, self._zygotes = self._zygotes, Zygotes(self._load_s)
        zygotes.retire()
        server.retire()

    def _let_go(self) -> None:
        """Forget all: this process is a fork of the one that it belonged to."""
        for server in [*self._retired, *([self._fork_server] if self._fork_server else [])]:
            server.let_go()
        self._zygotes.let_go()
        self._lock, self.idle = threading.RLock(), IdleChildren()
        self._fork_server, self._retired, self._zygotes = None, [], Zygotes(self._load_s)


def _module_of(handler: str) -> str:
    return handler.partition(":")[0]


#: They are ended when this process ends, and are not those of a fork of it.
_with_processes: set[Children] = set()


def _let_go_of_all() -> None:
    for children in _with_processes:
        children._let_go()  # noqa: SLF001 - of this module
    _with_processes.clear()


def _close_all() -> None:
    for children in list(_with_processes):
        children.close()


os.register_at_fork(after_in_child=_let_go_of_all)
atexit.register(_close_all)
