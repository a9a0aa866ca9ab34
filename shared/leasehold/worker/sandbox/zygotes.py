"""Zygotes: processes that have imported the module of a handler, and fork from there."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final

from leasehold.worker.sandbox.child import Child
from leasehold.worker.sandbox.fork_server import READY
from leasehold.worker.sandbox.forker import Forker

_MOST: Final = 16

#: A module that could not be imported so often is imported by each child itself.
_TRIES: Final = 3


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
        if module in self._zygotes or self._tries[module] == _TRIES:
            return
        self._zygotes[module] = Zygote(handlers, server, self._load_s)
        self._tries[module] += 1
        if len(self._zygotes) > _MOST:
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
