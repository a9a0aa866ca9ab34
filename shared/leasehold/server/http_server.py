"""The HTTP server: waitress, bound so that no caller can keep the others out.

Waitress reads requests and writes answers in one thread, whatever their pace, and gives a request
to one of its other threads once it is there completely. So a slow caller holds a connection and
nothing else. What it leaves open is bounded here: how long a request and the taking of an answer
last, how much is kept meanwhile, and who gives way where there are too many connections.
"""

from __future__ import annotations

import errno
import heapq
import ipaddress
import logging
import resource
import select
import selectors
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher
from waitress.utilities import BadRequest

from leasehold.logs.attempt import without_repeats

_LOG: Final = logging.getLogger("leasehold.server")

#: Requests that are answered at once. One takes milliseconds, unless the store is away.
THREADS: Final = 16
#: This one asks no store, and has its own thread: a process whose threads all wait for a store
#: would be taken for one that hangs, and be started again.
_HEALTH: Final = "/health"
#: A new connection that has sent nothing by then is closed.
FIRST_BYTE_TIMEOUT_S: Final = 10.0
#: A request that is not complete by then is broken off.
REQUEST_TIMEOUT_S: Final = 30.0
#: A connection that is silent for this long between requests is closed.
IDLE_TIMEOUT_S: Final = 120.0
#: A response that its caller does not read for this time is broken off,
ANSWER_TIMEOUT_S: Final = 30.0
#: and one of which less than this is taken within a minute.
MIN_ANSWER_BYTES_PER_MINUTE: Final = 1024 * 1024
_MINUTE_S: Final = 60.0
#: The rest of a refused body is dropped for this time, so that its sender gets the answer.
DROP_TIMEOUT_S: Final = 5.0
#: What is answered by then, when the server stops, still gets out.
FLUSH_TIMEOUT_S: Final = 2.0

#: So much of bodies that are not complete and of answers that are not taken is kept for all.
MAX_KEPT_BYTES: Final = 256 * 1024 * 1024
_MAX_CONNECTIONS: Final = 1000
#: Connections that may be open beyond those while a thread answers each of the others.
_SPARE: Final = 64
#: So much of its answers the system keeps for a connection, which else takes megabytes of them:
#: who reads nothing would have a score of requests answered.
_SEND_BUFFER_BYTES: Final = 128 * 1024
_UNLIMITED: Final = 2**62
#: A body in chunks is read so much at a time: the time of that grows with its square. For their
#: lengths, and for what follows the last one, there are so many bytes, and an eighth of the body.
_PIECE_BYTES: Final = 4 * 1024
_MAX_FRAMING_BYTES: Final = 64 * 1024
_DROP_BYTES: Final = 64 * 1024
_TURN_S: Final = 1.0
_FLUSH_TURN_S: Final = 0.05
#: What a caller cannot be accepted for: no descriptors, no memory.
#: Of what the server refuses before the API has it; any other is `invalid_request`.
_CODES: Final = {413: "too_large", 431: "too_large", 500: "internal", 501: "body_encoding"}
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_LINE: Final = (
    "new callers wait until the system gives room ({problem}); where that stays, raise what this "
    "process may have: `ulimit -n`, or LimitNOFILE= of its service"
)

#: Says how large the body of a request may be, by its head, as WSGI has it; 0: it is refused.
BodyLimit = Callable[[Mapping[str, str]], int]


class HttpServer:
    """Serves a WSGI application from `start` until `stop`.

    Args:
        app: the application.
        listener: a socket that listens; it is closed in the end.
        body_limit: the most bytes of a body. One that is larger is not waited for: the application
            has it as empty, with the length that was announced, and refuses it.

    Attributes:
        listener: the socket that listens.

    Raises:
        RuntimeError: the system has no threads for it.
    """

    def __init__(self, app: Any, listener: socket.socket, body_limit: BodyLimit) -> None:
        self.listener = listener
        self._map = _Connections()
        self._server = _Server(app, self._map, listener, body_limit)
        self._stopping = threading.Event()
        self._flush_s = FLUSH_TIMEOUT_S
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def hand_over(self, app: Any, body_limit: BodyLimit) -> None:
        """Have another application answer from the next request on."""
        self._server.body_limit = body_limit
        self._server.application = app

    def stop(self, seconds: float = 2 * FLUSH_TIMEOUT_S) -> None:
        """Accept nothing more, finish what is being answered, and close all connections.

        Args:
            seconds: how long that may take.
        """
        self._flush_s = min(FLUSH_TIMEOUT_S, seconds / 2)
        self._stopping.set()
        if self._thread.is_alive():
            self._server.pull_trigger()
            self._thread.join()
        elif self._map:  # it was never started
            self._close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._map.turn(_TURN_S)
            except Exception:  # noqa: BLE001 - such as no memory: no other thread serves
                _LOG.exception("the HTTP server goes on after an error")
                self._stopping.wait(_TURN_S)
        self._close()

    def _close(self) -> None:
        self._server.end_answers(self._flush_s)
        for channel in list(self._server.active_channels.values()):
            channel.close_when_flushed = True
        self._map.look_at_all()
        self._server.accepting = False
        for _ in range(int(self._flush_s / _FLUSH_TURN_S)):
            if not self._server.active_channels:
                break
            self._map.turn(_FLUSH_TURN_S)
        for channel in list(self._server.active_channels.values()):
            channel.close_now()
        wasyncore.close_all(self._map)
        self._map.close()


class _Connections(dict[int, Any]):
    """The connections of waitress, by file, and which of them are ready to be read or written.

    The loop of waitress asks each connection before each wait what it waits for, and accepts one
    caller a time: beside a thousand who are silent, an answer took a thousand times as long. Here
    only those are asked of which something came, or which a thread answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        self._stirred: set[int] = set()  # those that may wait for something else than before

    def __setitem__(self, file: int, it: Any) -> None:
        super().__setitem__(file, it)
        self._stirred.add(file)

    def __delitem__(self, file: int) -> None:
        super().__delitem__(file)
        self._stirred.discard(file)
        self._wait_for(file, None, 0)

    def look_at_all(self) -> None:
        """Ask all of them in the next turn."""
        self._stirred.update(self)

    def turn(self, seconds: float) -> None:
        """Wait up to this time until something is ready, and have it read and written."""
        for file in tuple(self._stirred):
            if it := self.get(file):  # one may close others
                self._ask(file, it)
        for key, ready in self._selector.select(seconds):
            if self.get(key.fd) is key.data:  # none of those before has closed it
                self._stirred.add(key.fd)
                flags = select.POLLIN if ready & selectors.EVENT_READ else 0
                flags |= select.POLLOUT if ready & selectors.EVENT_WRITE else 0
                wasyncore.readwrite(key.data, flags)

    def close(self) -> None:
        """Release the waiting requests."""
        self._selector.close()

    def _ask(self, file: int, it: Any) -> None:
        is_steady = isinstance(it, _Channel) and not it.requests  # no thread changes what it wants
        events = selectors.EVENT_READ if it.readable() else 0
        if it.writable():
            events |= selectors.EVENT_WRITE
        if self.get(file) is not it:
            return
        self._wait_for(file, it, events)
        if is_steady:
            self._stirred.discard(file)

    def _wait_for(self, file: int, it: Any, events: int) -> None:
        watched = self._selector.get_map().get(file)
        if watched is None:
            if events:
                self._selector.register(file, events, it)
        elif not events:
            self._selector.unregister(file)
        elif watched.events != events:
            self._selector.modify(file, events, it)


class _Request(HTTPRequestParser):  # type: ignore[misc] # waitress has no types
    """A request while it arrives: one at a time, and no body that its head has refused.

    Attributes:
        is_refused: its body is not waited for; what still comes of it is no request.
    """

    is_refused = False
    body_rcv: Any
    header_plus: bytes
    chunked: bool
    content_length: int
    completed: bool

    def __init__(self, channel: _Channel) -> None:
        super().__init__(channel.adj)
        self._channel = channel
        self._limit = _UNLIMITED

    def received(self, data: bytes) -> int:
        """Take what came; what follows the request waits until its answer is taken."""
        used = self._received_chunks(data) if self.chunked else self._received_some(data)
        if not self.completed:
            return used
        if rest := data[used:]:
            self._channel.keep_for_later(rest)
        return len(data)

    def _received_some(self, data: bytes) -> int:
        """Take of a head or of a body without chunks; empty lines before a head are nothing."""
        is_first = self.body_rcv is None and not self.header_plus
        empty = len(data) - len(data.lstrip(b"\r\n")) if is_first else 0
        if empty == len(data):
            return empty
        return empty + int(super().received(data[empty:]))

    def _received_chunks(self, data: bytes) -> int:
        used = 0
        while used < len(data) and not self.completed:
            used += super().received(data[used : used + _PIECE_BYTES])
            self._check_chunks()
        return used

    def _check_chunks(self) -> None:
        """End it where the chunks are more than may be, or more is said of them than is in them."""
        held = len(self.body_rcv)
        if held + self.body_rcv.chunk_remainder > self._limit:
            self.headers["CONTENT_LENGTH"] = str(self._limit + 1)
            self.completed = True
            self._refuse()
        elif self.body_bytes_received - held > _MAX_FRAMING_BYTES + held // 8:
            self.error = BadRequest("The body has more lines of chunks than bytes")
            self.completed = True

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head, and end there where the body is refused.

        Raises:
            ParsingError: it can be read in two ways, or not at all.
        """
        _check_framing(header_plus)
        try:
            super().parse_header(header_plus)
        except ValueError:  # a number of thousands of digits, an invalid address
            raise ParsingError("The length or the address cannot be read") from None
        if self.body_rcv is None:
            return
        self._limit = self._channel.server.body_limit(self._head())
        if self._limit and self.content_length <= self._limit:
            return
        if self.chunked:
            self.headers["CONTENT_LENGTH"] = "1"  # there is a body, and it does not come whole
        self.body_rcv.getbuf().close()
        self.body_rcv, self.chunked, self.content_length = None, False, 0
        self._refuse()

    def _refuse(self) -> None:
        self.is_refused, self.expect_continue = True, False
        self.headers["CONNECTION"] = "close"

    def _head(self) -> Mapping[str, str]:
        head = {f"HTTP_{name}": value for name, value in self.headers.items()}
        if self.chunked:
            head["HTTP_TRANSFER_ENCODING"] = "chunked"
        return head | {
            "REQUEST_METHOD": self.command.upper(),
            "PATH_INFO": self.path,
            "REQUEST_URI": self.request_uri,
            "REMOTE_ADDR": self._channel.addr[0],
            "SERVER_PORT": str(self._channel.server.effective_port),
            "CONTENT_LENGTH": self.headers.get("CONTENT_LENGTH", ""),
            "CONTENT_TYPE": self.headers.get("CONTENT_TYPE", ""),
        }


def _check_framing(head: bytes) -> None:
    """Refuse a head whose end, or whose body's end, another server may see elsewhere.

    Source:
        RFC 9112, sections 5.2 (folded lines), 6.1 and 6.3 (two lengths).
    """
    first, *lines = head.split(b"\r\n")
    if any(line.startswith((b" ", b"\t")) for line in lines):
        raise ParsingError("A header is folded over several lines")
    names = [line.partition(b":")[0].rstrip(b" \t").lower() for line in lines]
    lengths = names.count(b"content-length") + names.count(b"transfer-encoding")
    if lengths > 1:
        raise ParsingError("The length of the body is given twice")
    if b"transfer-encoding" in names and not first.rstrip().endswith(b"HTTP/1.1"):
        raise ParsingError("Transfer-Encoding needs HTTP/1.1")


class _Refusal(ErrorTask):  # type: ignore[misc] # waitress has no types
    """The answer to bytes that HTTP does not allow: an error as all others of the API are."""

    def execute(self) -> None:
        """Answer, and end the connection: where the next request would begin is not known."""
        from leasehold.web.entry import refuse  # noqa: PLC0415 - as it imports flask

        error = self.request.error
        problem, _, _ = error.body.partition(' "')  # the line that follows may have a token in it
        said = problem[:1].upper() + problem[1:]
        answer = refuse(
            error.code, _CODES.get(error.code, "invalid_request"), f"{said.rstrip('.')}."
        )
        body = answer.get_data()
        self.status = f"{error.code} {error.reason}"
        self.response_headers.extend(answer.headers)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """A connection: one request of it is answered at a time, and nothing of it takes forever.

    Attributes:
        peer: who calls; an IPv6 network of 64 bits is one caller.
        moved_at: when a byte came or went last, by the monotonic clock.
    """

    error_task_class = _Refusal

    def __init__(self, server: _Server, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:  # noqa: A002 - as its base has it
        self.peer = _peer_of(addr[0])
        self.moved_at = self._began_at = time.monotonic()
        self._sent = 0
        self._window: tuple[float, int] | None = None  # of an answer: since when, _sent then
        self._later = b""  # what came behind the request that is answered
        self._has_asked = self._drops = False
        super().__init__(server, sock, addr, adj, map=map)

    def parser_class(self, _adj: Any) -> _Request:
        """Return what reads the next request."""
        return _Request(self)

    def keep_for_later(self, data: bytes) -> None:
        """Keep what came behind a request, until its answer is taken."""
        self._later = data

    @property
    def is_answering(self) -> bool:
        """Whether a thread has its request, or will have it, and no answer waits to be taken."""
        return bool(self.requests) and not self.total_outbufs_len

    @property
    def kept(self) -> int:
        """The bytes that are kept for it."""
        arriving = self.request
        return int(self.total_outbufs_len + (arriving.body_bytes_received if arriving else 0))

    def is_over(self, now: float) -> bool:
        """Return whether its time is over; called about each second."""
        if self._drops:
            return now - self._began_at >= DROP_TIMEOUT_S
        if self.total_outbufs_len or self._has_next():  # which waits for the system to have room
            return self._takes_too_long(now)
        self._window = None
        if self.requests:
            return False
        if self.request is not None:
            return now - self._began_at >= REQUEST_TIMEOUT_S
        return now - self.moved_at >= (IDLE_TIMEOUT_S if self._has_asked else FIRST_BYTE_TIMEOUT_S)

    def close_now(self) -> None:
        """Close it, in the server's thread: one that takes nothing is never ready to be written."""
        self.will_close = True
        self.handle_close()

    def handle_close(self) -> None:
        """Close it, and what is kept of a request that did not come whole."""
        super().handle_close()
        if self.request is not None:
            self.request.close()

    def _takes_too_long(self, now: float) -> bool:
        if self._window is None:  # it had nothing to take until now
            self._window, self.moved_at = (now, self._sent), now
        since, sent = self._window
        if now - self.moved_at >= ANSWER_TIMEOUT_S:
            return True
        if now - since < _MINUTE_S:
            return False
        self._window = now, self._sent
        return self._sent - sent < MIN_ANSWER_BYTES_PER_MINUTE

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Send what the caller takes now; return how many bytes that were."""
        if sent := int(super().send(data, do_close)):
            self._sent, self.moved_at = self._sent + sent, time.monotonic()
        return sent

    def received(self, data: bytes) -> bool:
        """Take what came for a request."""
        before, self.moved_at = self.request, time.monotonic()
        taken = bool(super().received(data))
        if self.request is not None and self.request is not before:
            self._began_at = self.moved_at
        self._has_asked = self._has_asked or bool(self.requests)
        return taken

    def readable(self) -> bool:
        """Return whether to read: what came before is answered, and the answer taken."""
        return self._drops or (not self._later and bool(super().readable()))

    def writable(self) -> bool:
        """Return whether there is something to do without a byte to read."""
        if self._drops:
            return bool(self.will_close)
        return bool(super().writable() or self._has_next())

    def _has_next(self) -> bool:
        ended = self.will_close or self.close_when_flushed
        return bool(self._later) and not (ended or self.requests or self.total_outbufs_len)

    def handle_read(self) -> None:
        """Read what came; of a refused body, drop it."""
        if not self._drops:
            super().handle_read()
            return
        with suppress(OSError):
            self.recv(_DROP_BYTES)  # it closes the connection at its end
            return
        self.handle_close()

    def handle_write(self) -> None:
        """Write what is taken; then see to what came behind the request, or close."""
        ends = self.close_when_flushed
        if ends and not self.requests and not self.will_close:
            self._flush_exception(self._flush_some)
            if not self.connected:
                return  # the caller hung up, and it is closed
            if not self.total_outbufs_len and not self.will_close:
                self._drop_rest()
                return
        super().handle_write()
        if self._has_next():
            later, self._later = self._later, b""
            self.received(later)

    def _drop_rest(self) -> None:
        """Say that this was all, and drop what comes: who still sends would lose the answer."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self._drops, self._began_at, self.close_when_flushed = True, time.monotonic(), False

    def _flush_some_if_lockable(self, do_close: bool = True) -> None:
        """Send for the thread that answers, once that has sent what it can: in moments.

        To try again and again meanwhile would take that thread the time it needs.
        """
        if self.outbuf_lock.acquire(timeout=_FLUSH_TURN_S):
            try:
                super()._flush_some_if_lockable(do_close)
            finally:
                self.outbuf_lock.release()

    def _flush_outbufs_below_high_watermark(self) -> None:
        """Have a thread wait while too much of a large answer is not taken."""
        if self.total_outbufs_len > self.adj.outbuf_high_watermark:
            self.server.note_waiting(self)
            try:
                super()._flush_outbufs_below_high_watermark()
            finally:
                self.server.forget_waiting(self)


class _Server(TcpWSGIServer):  # type: ignore[misc] # waitress has no types
    """The connections, and which of them gives way."""

    channel_class = _Channel

    def __init__(
        self, app: Any, map_: _Connections, listener: socket.socket, body_limit: BodyLimit
    ) -> None:
        self.body_limit = body_limit
        self._most = _connection_limit()
        self._waiting: list[_Channel] = []  # those for which a thread waits
        self._accepts_from = 0.0  # by the monotonic clock
        self._warn = without_repeats(_LOG.warning, time.monotonic)
        settings = Adjustments(
            sockets=[listener],
            ident=None,
            cleanup_interval=1,
            log_socket_errors=False,  # callers that are gone
            connection_limit=self._most + _SPARE,
            max_request_body_size=_UNLIMITED,  # `body_limit` says it
            recv_bytes=_DROP_BYTES,
        )
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES
        )  # each connection has it
        threads, self._of_health = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        threads.set_thread_count(THREADS)
        self._of_health.set_thread_count(1)
        where = (listener.family, listener.type, listener.proto, listener.getsockname())
        super().__init__(
            app,
            map_,
            _sock=listener,
            dispatcher=threads,
            adj=settings,
            sockinfo=where,
            bind_socket=False,
        )

    def add_task(self, task: _Channel) -> None:
        """Give a request to a thread."""
        is_health = bool(task.requests) and getattr(task.requests[0], "path", "") == _HEALTH
        (self._of_health if is_health else self.task_dispatcher).add_task(task)

    def end_answers(self, seconds: float) -> None:
        """Let what is being answered end within this time."""
        self._of_health.shutdown(timeout=seconds)
        self.task_dispatcher.shutdown(timeout=seconds)

    def maintenance(self, _now: float) -> None:
        """Close what is over; called about each second."""
        now = time.monotonic()
        channels = list(self.active_channels.values())
        for channel in channels:
            if channel.will_close or channel.is_over(now):
                channel.close_now()
        kept = sum(channel.kept for channel in channels)
        for last in self._giving_way():
            if kept <= MAX_KEPT_BYTES:
                break
            if last.kept:
                kept -= last.kept
                last.close_now()

    def readable(self) -> bool:
        """Return whether to accept callers; called before each wait."""
        has_room = bool(super().readable())
        return has_room and time.monotonic() >= self._accepts_from

    def accept(self) -> Any:
        """Return the next caller, None where there is none, or nothing to have it with."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno in _NO_ROOM:  # the caller waits, and would be tried again at once
                self._accepts_from = time.monotonic() + _TURN_S
                self._warn(_NO_ROOM_LINE.format(problem=error.strerror))
            return None

    def handle_accept(self) -> None:
        """Accept all who wait, then have others give way where there are more than may be."""
        for _ in range(_SPARE):
            before = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == before:
                break
        more = len(self.active_channels) - self._most
        if more > 0:
            for last in islice(self._giving_way(), more):
                last.close_now()

    def _giving_way(self) -> Iterator[_Channel]:
        """Yield the longest silent connection of who has most, and so on; none being answered."""
        held: dict[str, int] = Counter()
        silent: dict[str, list[_Channel]] = defaultdict(list)
        for channel in self.active_channels.values():
            held[channel.peer] += 1
            if not (channel.will_close or channel.is_answering):
                silent[channel.peer].append(channel)
        for channels in silent.values():
            channels.sort(key=attrgetter("moved_at"), reverse=True)
        peers = [(-held[peer], silent[peer][-1].moved_at, peer) for peer in silent]
        heapq.heapify(peers)
        while peers:
            more, _, peer = heapq.heappop(peers)
            yield silent[peer].pop()
            if silent[peer]:
                heapq.heappush(peers, (more + 1, silent[peer][-1].moved_at, peer))

    def note_waiting(self, channel: _Channel) -> None:
        """Note that a thread waits for a caller; half of them, at most, do so."""
        self._waiting.append(channel)
        waiting = [one for one in tuple(self._waiting) if not one.will_close]
        if len(waiting) > THREADS // 2:
            min(waiting, key=lambda one: one.moved_at).will_close = True
            self.pull_trigger()

    def forget_waiting(self, channel: _Channel) -> None:
        """Note that no thread waits for it any more."""
        self._waiting.remove(channel)


def _peer_of(address: str) -> str:
    """Return who calls from an address: of IPv6, one who has an address has 2**64 of them."""
    with suppress(ValueError):
        found = ipaddress.ip_address(address)
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
            return str(int(found) >> 64)
    return address


def _connection_limit() -> int:
    """Return how many connections may be open: half of what the system lets this process open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(1, min(_MAX_CONNECTIONS, files // 2))
