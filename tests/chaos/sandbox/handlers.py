"""The handlers of these tests."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from leasehold import PermanentError, SoftTimeoutError, StepContext
from leasehold.worker.sandbox.child.soft_limit import STACKS_SIGNAL
from leasehold.worker.sandbox.forking.fork_server import ENGINE_ERROR

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads


class Page(BaseModel):
    title: str
    lines: int = 0


class Noted:
    """A model that notes which process has built it."""

    built_by = 0

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        cls.built_by = os.getpid()
        return handler.generate_schema(Any)


def who_runs(ctx: StepContext, given: Any) -> Any:
    facts = [ctx.run_id, ctx.step_type, ctx.attempt, ctx.trial]
    return {"pid": os.getpid(), "facts": facts, "given": given, "left": ctx.time_left().seconds}


def builds_its_model(ctx: StepContext, given: Noted) -> bool:
    return Noted.built_by == os.getpid()


def model(ctx: StepContext, given: Page) -> Page:
    return Page(title=given.title.upper(), lines=given.lines + 1)


def all_calls(ctx: StepContext, given: Any) -> Any:
    ctx.progress(0.5, "half")
    ctx.spend(tokens=1000, usd=0.1)
    ctx.spend(usd=0.2)
    ctx.checkpoint(3, {"pages": [1, 2]}, "reading")
    ctx.artifacts.put("a/b.bin", bytes(range(256)))
    ctx.artifacts.put("empty", b"")
    resume = ctx.resume
    return {
        "resume": None if resume is None else [resume.phase, resume.partial_results],
        "output": ctx.output_of("before"),
        "file": list(ctx.artifacts.get("a/b.bin")) == list(range(256)),
        "exists": [ctx.artifacts.exists("a/b.bin"), ctx.artifacts.exists("other")],
        "list": list(ctx.artifacts.list()),
    }


def errors_of_calls(ctx: StepContext, given: Any) -> Any:
    raised: dict[str, list[str]] = {}
    calls: dict[str, Callable[[], object]] = {
        "output_of": lambda: ctx.output_of("nobody"),
        "get": lambda: ctx.artifacts.get("nothing"),
        "name": lambda: ctx.artifacts.put("../../etc", b""),
        "folder": lambda: ctx.artifacts.put("taken/below", b""),
    }
    ctx.artifacts.put("taken", b"")
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # noqa: BLE001
            raised[name] = [type(error).__name__, str(error)]
    return raised


def large_file(ctx: StepContext, given: int) -> Any:
    data = b"0123456789abcdef" * (given // 16)
    ctx.artifacts.put("large", data)
    return ctx.artifacts.get("large") == data


def calls_of_threads(ctx: StepContext, given: int) -> Any:
    failed: list[str] = []

    def work(number: int) -> None:
        try:
            name = f"file-{number}"
            ctx.artifacts.put(name, name.encode())
            assert ctx.artifacts.get(name) == name.encode()
        except BaseException as error:  # noqa: BLE001
            failed.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(given)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def logs(ctx: StepContext, given: Any) -> None:
    ctx.log.warning("of the %s", "context")
    logging.getLogger("shop.cart").error("of a logger", extra={"order": 7})
    logging.getLogger("shop.cart").info("too low")
    try:
        int("inner")
    except ValueError:
        logging.getLogger("shop.cart").exception("with an error")


def prints(ctx: StepContext, given: Any) -> None:
    print("to stdout")  # noqa: T201 - as handlers do
    print("to stderr", file=sys.stderr)  # noqa: T201 - as above
    sys.stdout.flush()
    os.write(1, b"no text: \xff\npartial")


def raises(ctx: StepContext, given: Any) -> None:
    password = "hunter22"  # noqa: F841, S105
    raise ValueError(f"it failed, token=sk-abcdefgh{given}123456")


def raises_permanently(ctx: StepContext, given: Any) -> None:
    raise PermanentError("never", code="never")


def leaves_by_sys_exit(ctx: StepContext, given: Any) -> None:
    sys.exit(0)


def returns_no_json(ctx: StepContext, given: Any) -> Any:
    return {1, object()}


def returns_too_much(ctx: StepContext, given: Any) -> Any:
    return "x" * (17 * 1024 * 1024)


def exits_at_once(ctx: StepContext, given: Any) -> None:
    print("last words", flush=True)  # noqa: T201 - as above
    os._exit(0)


def exits_as_the_engine(ctx: StepContext, given: Any) -> None:
    os._exit(ENGINE_ERROR)


def parent(ctx: StepContext, given: Any) -> int:
    return os.getppid()


def closes_the_socket(ctx: StepContext, given: Any) -> None:
    os.closerange(3, 200)
    time.sleep(600)


def writes_garbage(ctx: StepContext, given: Any) -> None:
    for descriptor in range(3, 60):
        with suppress(OSError):
            socket.socket(fileno=os.dup(descriptor)).send(b"HTTP/1.1 200 OK\r\n\r\n")
    time.sleep(600)


def crashes_after_its_result(ctx: StepContext, given: Any) -> str:
    atexit.register(os.abort)
    return "done"


def waits_without_cpu(ctx: StepContext, given: float) -> float:
    """Return the seconds of CPU that it takes to wait, with its worker called and answered."""
    ctx.artifacts.put("large", bytes(200_000))
    began = time.process_time()
    ctx.wait_or_shutdown(given)
    return time.process_time() - began


def ends_slowly(ctx: StepContext, given: Any) -> str:
    """Close all it has at its end, as any process does, and then need long until it is gone."""
    atexit.register(time.sleep, 600)
    atexit.register(os.closerange, 3, 200)
    return "done"


def exits_cleanly(ctx: StepContext, given: str) -> str:
    atexit.register(Path(given).write_text, "was called")
    return "done"


def forks(ctx: StepContext, given: Any) -> Any:
    child = os.fork()
    if child == 0:
        try:
            ctx.checkpoint(1, None)
        except RuntimeError:
            return "of the fork"
    _, status = os.waitpid(child, 0)
    return ["of the handler", status]


def terminates_its_forks(ctx: StepContext, given: Any) -> Any:
    """Return by which signals its forks ended."""
    codes = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        os.kill(pid, number)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return codes


def has_a_breakpoint(ctx: StepContext, given: Any) -> None:
    breakpoint()  # noqa: T100


def sleeps(ctx: StepContext, given: Any) -> str:
    try:
        time.sleep(600)
    except SoftTimeoutError:
        ctx.progress(0.9, "cleaned up")
        return f"cleaned up, {ctx.shutdown_requested}"
    return "slept"


def raises_at_the_limit(ctx: StepContext, given: Any) -> None:
    try:
        while True:
            time.sleep(0.01)
    except SoftTimeoutError:
        raise LookupError("while it cleaned up") from None


def is_sent_no_signal(ctx: StepContext, given: Any) -> None:
    """Raise at the limit what it was sent of the signal at which a crash is possible."""
    sent: list[int] = []
    signal.signal(STACKS_SIGNAL, lambda number, _: sent.append(number))
    try:
        time.sleep(600)
    except SoftTimeoutError:
        raise LookupError(f"sent: {sent}") from None


def kills_its_parent(ctx: StepContext, given: Any) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def is_killed(ctx: StepContext, given: Any) -> None:
    """As by the system, where it has no more memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def swallows(ctx: StepContext, given: Any) -> None:
    while True:
        with suppress(BaseException):
            time.sleep(600)


def cleans_up_for_ever(ctx: StepContext, given: Any) -> None:
    try:
        time.sleep(600)
    except SoftTimeoutError:
        ctx.progress(0.9, "cleaning up")
        time.sleep(600)


async def awaits(ctx: StepContext, given: Any) -> str:
    async def other() -> None:
        await asyncio.sleep(600)

    task = asyncio.create_task(other())
    try:
        await task
    except SoftTimeoutError:
        await asyncio.sleep(0)
        return f"cleaned up, {task.cancelled()}"
    return "awaited"


async def blocks_its_loop(ctx: StepContext, given: Any) -> str:
    await asyncio.sleep(0)
    try:
        time.sleep(600)  # noqa: ASYNC251 - that is what it is for
    except SoftTimeoutError:
        await asyncio.sleep(0)
        return "cleaned up"
    return "slept"


async def blocks_in_a_task(ctx: StepContext, given: Any) -> str:
    async def other() -> None:
        while True:
            time.sleep(0.01)  # noqa: ASYNC251 - as above

    task = asyncio.create_task(other())
    try:
        await task
    except SoftTimeoutError:
        return "cleaned up"
    return "awaited"


async def all_calls_of_coroutines(ctx: StepContext, given: Any) -> Any:
    await ctx.acheckpoint(1, ["one"])
    await ctx.artifacts.aput("a.txt", b"a")
    return {
        "output": await ctx.aoutput_of("before"),
        "file": (await ctx.artifacts.aget("a.txt")).decode(),
        "exists": [await ctx.artifacts.aexists(name) for name in ("a.txt", "b.txt")],
        "list": list(await ctx.artifacts.alist()),
    }


def stops(ctx: StepContext, given: Any) -> str:
    called = threading.Event()
    ctx.on_stop(called.set)
    ctx.progress(0.1, "ready")
    ctx.wait_or_shutdown(600)
    return f"stopped, {called.wait(60)}"


def ignores_the_stop(ctx: StepContext, given: Any) -> None:
    ctx.progress(0.1, "ready")
    time.sleep(600)


def eats(ctx: StepContext, given: Any) -> None:
    eaten = []
    while True:
        eaten.append(b"x" * (8 * 1024 * 1024))


def eats_when_stopped(ctx: StepContext, given: Any) -> None:
    ctx.progress(0.1, "ready")
    ctx.wait_or_shutdown(600)
    eats(ctx, given)


def lacks_memory(ctx: StepContext, given: Any) -> None:
    bytearray(1 << 46)


async def never_ends_awaiting(ctx: StepContext, given: Any) -> None:
    while True:
        with suppress(BaseException):
            await asyncio.sleep(600)  # the one


def stops_by_an_error(ctx: StepContext, given: Any) -> None:
    ctx.progress(0.1, "ready")
    if ctx.wait_or_shutdown(600):
        raise RuntimeError("it was to stop")


def logs_in_a_callback(ctx: StepContext, given: Any) -> str:
    def call() -> None:
        time.sleep(0.2)
        ctx.log.warning("cleaned up")

    ctx.on_stop(call)
    ctx.progress(0.1, "ready")
    ctx.wait_or_shutdown(600)
    return "stopped"


def prints_a_key_and_exits(ctx: StepContext, given: Any) -> None:
    lines = "\n".join(letter * 64 for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    print(f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\nbye")  # noqa: T201
    sys.stdout.flush()
    os._exit(4)


def continues(ctx: StepContext, given: Any) -> Any:
    ctx.checkpoint(1, "kept")
    ctx.continue_later()


def continues_in_a_pool(ctx: StepContext, given: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ctx.continue_later).result()


async def continues_in_tasks(ctx: StepContext, given: Any) -> Any:
    async def ask() -> None:
        await asyncio.sleep(0)
        ctx.continue_later()

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
    return "never"


def continues_in_a_callback(ctx: StepContext, given: Any) -> Any:
    ctx.on_stop(ctx.continue_later)
    ctx.progress(0.1)
    ctx.wait_or_shutdown(60)
    return "stopped"


def continues_when_stopped(ctx: StepContext, given: Any) -> Any:
    ctx.progress(0.1)
    ctx.wait_or_shutdown(60)
    ctx.continue_later()


def continues_at_its_limit(ctx: StepContext, given: Any) -> Any:
    """Work on to the soft limit, keep that, and ask for more time."""
    resume = ctx.resume
    try:
        time.sleep(60)
    except SoftTimeoutError:
        ctx.checkpoint(1, resume)  # which does not end it: its handler says what becomes of it
        ctx.progress(0.5)
    ctx.continue_later()


def keeps_when_time_is_short(ctx: StepContext, given: Any) -> Any:
    """Work for about half of the time, and keep that; first once more what was kept before."""
    count = ctx.resume.iteration_count if ctx.resume else 0
    while not ctx.wait_or_shutdown(2.5):
        ctx.checkpoint(count, count)
        count += 1
        ctx.checkpoint(count, count)
    return "late"


def loops(ctx: StepContext, given: Any) -> Any:
    """Go on from a checkpoint that is none of a loop's."""
    loop = ctx.checkpointed(range(3), 2)
    for number in loop:
        loop.results.append(number)
    return [ctx.resume, loop.results]


def raises_at_an_item(ctx: StepContext, given: Any) -> Any:
    """Raise at item 7, after something was made of it."""
    loop = ctx.checkpointed(range(10))
    for number in loop:
        loop.results.append(number)
        if number == 7 and ctx.resume is None:
            _raise(ctx, given)
    return loop.results


async def raises_at_an_item_later(ctx: StepContext, given: Any) -> Any:
    """Do the same in a coroutine."""
    loop = ctx.acheckpointed(range(10))
    async for number in loop:
        loop.results.append(number)
        if number == 7 and ctx.resume is None:
            _raise(ctx, given)
    return loop.results


def _raise(ctx: StepContext, what: str) -> None:
    match what:
        case "an error":
            raise ValueError("item 7 cannot be read")
        case "a wish to go on later":
            ctx.continue_later()
        case "an end":
            sys.exit(3)
        case "the soft limit":
            while True:
                time.sleep(1)


def raises_with_what_cannot_be_kept(ctx: StepContext, given: Any) -> Any:
    """Raise with results that are not JSON."""
    loop = ctx.checkpointed(range(10))
    for number in loop:
        loop.results.append(ctx)
        if number == 2:
            raise ValueError("item 2 cannot be read")


def keeps_once(ctx: StepContext, given: Any) -> Any:
    """Keep what is given, and return it."""
    ctx.checkpoint(1, given)
    return given


def wait_until(then: float) -> float:
    """Return a time of the monotonic clock once it has come."""
    while time.monotonic() < then:
        time.sleep(0.01)
    return then


def is_entered(ctx: StepContext, given: Annotated[float, AfterValidator(wait_until)]) -> None:
    """Be given a time, once that has come."""
    ctx.progress(0.5, "entered")


def pays_twice(ctx: StepContext, given: float) -> None:
    """Make a call before a time, and one after it."""

    def pay(name: str) -> str:
        return ctx.artifacts.put(name, b"paid")

    ctx.once("first", pay, "first")
    wait_until(given)
    ctx.once("second", pay, "second")


def may_open_nothing_more(ctx: StepContext, given: Any) -> Any:
    """Call, and return more than goes at once, with no descriptor to be had."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    ctx.checkpoint(1, "kept")
    return "x" * 100_000
