"""The client for asyncio: the same calls, each made by its own thread few."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack, overload

from leasehold.client.arguments import Filters, Run, RunOptions, id_of, start_options
from leasehold.client.client import Client, pages_of
from leasehold.client.run_wait import OnChange, RunWait
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary

#: How many calls are made at once; the others wait for their turn. Who waits for a run makes none.
_THREADS: Final = 8

T = TypeVar("T")
P = ParamSpec("P")


def _twin(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a method of `Client` as one to be awaited."""

    @wraps(method)
    async def twin(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._call(partial(method, self.client, *args, **kwargs))

    return twin


class AsyncClient:
    """`Client` for asyncio: the same arguments, methods and errors; each method is awaited.

    Any number of tasks may wait for runs at once. A task that is cancelled stops waiting for the
    answer; what was asked for may still be done. Close it in the end, or use it in an `async with`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        actor: str | None = None,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        self.client: Final = Client(address, environ=environ, actor=actor, warn=warn)
        self._threads: Final = ThreadPoolExecutor(_THREADS, "leasehold-client")

    async def close(self) -> None:
        """Let the calls that are made end, drop those that wait, and close the store."""
        ended = partial(self._threads.shutdown, cancel_futures=True)
        await asyncio.to_thread(ended)
        self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    start = _twin(Client.start)
    get = _twin(Client.get)
    output = _twin(Client.output)
    files = _twin(Client.files)
    file = _twin(Client.file)
    calls = _twin(Client.calls)
    children = _twin(Client.children)
    trace = _twin(Client.trace)
    why = _twin(Client.why)
    page = _twin(Client.page)
    pause = _twin(Client.pause)
    resume = _twin(Client.resume)
    cancel = _twin(Client.cancel)
    retry = _twin(Client.retry)
    approve = _twin(Client.approve)
    recreate = _twin(Client.recreate)
    batch = _twin(Client.batch)
    deliveries = _twin(Client.deliveries)
    list_deliveries = _twin(Client.list_deliveries)
    deliver = _twin(Client.deliver)
    signal = _twin(Client.signal)
    stack = _twin(Client.stack)
    budgets = _twin(Client.budgets)
    limit = _twin(Client.limit)
    overrides = _twin(Client.overrides)
    override = _twin(Client.override)
    clear_override = _twin(Client.clear_override)
    pauses = _twin(Client.pauses)
    pause_steps = _twin(Client.pause_steps)
    resume_steps = _twin(Client.resume_steps)
    schedules = _twin(Client.schedules)
    schedule = _twin(Client.schedule)
    pause_schedule = _twin(Client.pause_schedule)
    resume_schedule = _twin(Client.resume_schedule)
    trigger_schedule = _twin(Client.trigger_schedule)
    backfill_schedule = _twin(Client.backfill_schedule)
    registry = _twin(Client.registry)
    workers = _twin(Client.workers)
    audit = _twin(Client.audit)
    sweep = _twin(Client.sweep)
    call = _twin(Client.call)

    async def wait(
        self,
        run: Run,
        timeout: float | None = None,  # noqa: ASYNC109 - as of Client.wait
        *,
        on_change: OnChange | None = None,
    ) -> Manifest:
        """Wait until the run is idle, as `Client.wait`; `on_change` is called in the event loop."""
        wait = RunWait(self.client.get, id_of(run), timeout, on_change)
        while True:
            await self._call(wait.poll)
            wait.notify()
            if wait.is_over:
                return wait.run
            await asyncio.sleep(wait.delay())

    @overload
    async def result(self, run: Run) -> Any: ...

    @overload
    async def result(self, run: Run, model: type[T]) -> T: ...

    async def result(self, run: Run, model: type[T] | None = None) -> Any:
        """Return the output of a completed run, as JSON has it or as `model` does."""
        return await self._call(partial(self.client.result, run, model))

    @overload
    async def run(self, pipeline: str, input: Any, **how: Unpack[RunOptions]) -> Any: ...

    @overload
    async def run(
        self, pipeline: str, input: Any, model: type[T], **how: Unpack[RunOptions]
    ) -> T: ...

    async def run(
        self,
        pipeline: str,
        input: Any,  # noqa: A002 - the word of the API
        model: type[T] | None = None,
        **how: Unpack[RunOptions],
    ) -> Any:
        """Start a run, wait for it, and return its result."""
        started = await self.start(pipeline, input, **start_options(how))
        ended = await self.wait(started, how.get("timeout"), on_change=how.get("on_change"))
        return await (self.result(ended) if model is None else self.result(ended, model))

    async def runs(self, **wanted: Unpack[Filters]) -> AsyncIterator[Summary]:
        """Yield all runs that fit, newest first; see `Client.runs`."""
        pages = pages_of(self.client.page, wanted)
        while (page := await self._call(partial(next, pages, None))) is not None:
            for run in page:
                yield run

    async def _call(self, call: Callable[[], T]) -> T:
        """Return what a call returns, made by one of the threads."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call)
