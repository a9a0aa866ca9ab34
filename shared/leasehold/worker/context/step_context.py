"""The context: what a handler may ask of the engine while it runs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from datetime import timedelta
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    SupportsFloat,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import pydantic_core

from leasehold.attempt.calls import ContextCalls
from leasehold.attempt.files import RunFiles
from leasehold.bounded_calls import in_thread
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import MAX_TOOL_CHARS, progress_message
from leasehold.domain.printable import one_line
from leasehold.domain.result import OutputStatus
from leasehold.domain.spend import checked_spend
from leasehold.errors import ContinuedError, InvalidRequestError
from leasehold.logs.attempt import STEP_LOG
from leasehold.worker.context.checkpointed import AsyncCheckpointed, Checkpointed, Pace
from leasehold.worker.context.checkpoints import Checkpoints, IncrementalState
from leasehold.worker.context.once import CallsMadeOnce, OnceCall, OnUnknown
from leasehold.worker.context.spending import add_to_call
from leasehold.worker.failures.failures import safe_text
from leasehold.worker.failures.retry_hints import wait_of_rate_limit

if TYPE_CHECKING:
    from leasehold.worker.context.mapped import MapOptions, Mapped, MappedCalls

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item

_LOG: Final = logging.getLogger(STEP_LOG)
#: Shares that add up to 1 may be a little above it, as numbers of a computer are.
_WHOLE: Final = 1.000001


class _AtFirstUse(Generic[T]):
    """An attribute that is made when it is first used; one, however many threads use it at once."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    def __get__(self, context: object, _: type) -> T:
        made: T = vars(context).setdefault(self._name, self._make(context))
        return made


class StepContext:
    """One attempt of one step, as its handler sees it.

    Attributes:
        run_id: the run.
        step: the name of the step in its pipeline.
        step_type: its type; the same, unless the pipeline names it.
        attempt: the number of this attempt, from 1.
        trial: the number of this trial, from 1.
        findings: what the reviewer of the trial before found; empty in the first trial.
        note: the words of the person who had the step retried, until it is handed off; else None.
        traceparent: the span of this attempt (W3C), as the parent of what it calls; None: the run
            has no trace.
        artifacts: files of this run.
        log: a logger that names run and step in each line.
    """

    def __init__(self, calls: ContextCalls) -> None:
        attempt = calls.facts
        self.run_id = attempt.run_id
        self.step = attempt.step
        self.step_type = attempt.step_type
        self.attempt = attempt.attempt
        self.trial = attempt.trial
        self.note = attempt.note
        self.traceparent = attempt.traceparent
        self.findings: list[Any] = []
        self._calls = calls
        self._is_booted = self._has_result = self._is_warned = False
        if attempt.trial > 1:
            self.findings = pydantic_core.from_json(calls.findings())
        self._kept = calls.kept_checkpoint() if attempt.has_checkpoint else None
        self._began = threading.get_ident(), calls.time_left()

    @_AtFirstUse
    def artifacts(self) -> RunFiles:
        """Files of this run."""
        return self._calls.files

    @_AtFirstUse
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names run and step in each line."""
        facts = {"run_id": self.run_id, "step": self.step, "attempt": self.attempt}
        return logging.LoggerAdapter(_LOG, facts)

    @_AtFirstUse
    def _once(self) -> CallsMadeOnce:
        return CallsMadeOnce(self._calls)

    @_AtFirstUse
    def _pace(self) -> Pace:
        return Pace(self._calls.facts, self._calls.time_left, *self._began)

    @_AtFirstUse
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self._calls, self._pace, self._kept)

    @property
    def resume(self) -> IncrementalState | None:
        """What an earlier attempt kept with `checkpoint`; None: begin at the beginning."""
        self._pace.looks_back = True
        return self._checkpoints.resume

    def time_left(self) -> timedelta:
        """Return how long the attempt may still run; never below zero."""
        return timedelta(seconds=max(0.0, self._calls.time_left()))

    @property
    def shutdown_requested(self) -> bool:
        """Whether the attempt should end: shutdown, a lost lease, or a run that was cancelled."""
        return self._calls.stop.is_requested

    def wait_or_shutdown(self, seconds: float) -> bool:
        """Wait, but not longer than until the attempt should end; True: it should.

        Args:
            seconds: how long at most.
        """
        return self._calls.stop.wait(seconds)

    async def await_or_shutdown(self, seconds: float) -> bool:
        """Wait as `wait_or_shutdown` does, without blocking the handler's loop."""
        return await self._calls.stop.wait_async(seconds)

    def on_stop(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called, in its own thread, when the attempt should end.

        For what a flag cannot reach: to close a connection that the handler waits for.

        Returns:
            What ends that.
        """
        return self._calls.stop.on_stop(callback)

    def checkpoint(self, iteration_count: int, partial_results: Any, phase: str = "") -> None:
        """Keep what there is so far; the next attempt finds it in `resume`. Renews the lease.

        Where it brings the step further than it ever was and the time to the soft limit is short,
        the attempt ends here, and the next one goes on: see `continue_later`. Not where the
        handler has never looked at `resume`, has been asked to stop, is handling an error, or
        calls it in its own thread.

        Args:
            iteration_count: how many iterations are done.
            partial_results: JSON values or pydantic models.
            phase: the part of the work, where it has several; at most 128 printable characters.

        Raises:
            InvalidRequestError, TooLargeError: the results cannot be kept.
            LeaseLostError: the run is another worker's now. Let it pass: the attempt is over.
            StoreUnavailableError: it could not be stored while the lease was held. Let it pass:
                the attempt is deferred, which is no failure.
            ContinuedError: it is kept, and the attempt ends here. Let it pass.
        """
        kept = self._checkpoints
        kept.end_if_short(kept.keep_by_hand(iteration_count, partial_results, phase))

    async def acheckpoint(
        self, iteration_count: int, partial_results: Any, phase: str = ""
    ) -> None:
        """Do what `checkpoint` does, without blocking the handler's loop.

        Where the system has no thread for that, it blocks: to lose the work would be worse.
        """
        kept = self._checkpoints
        save = partial(kept.keep_by_hand, iteration_count, partial_results, phase)
        kept.end_if_short(await in_thread(save))

    def checkpointed(self, items: Iterable[T], every: int = 5, phase: str = "") -> Checkpointed[T]:
        """Go through items, with a checkpoint after every few of them and at the end.

            pages = ctx.checkpointed(given.pages, every=5)
            for page in pages:
                pages.results.append(read(page))
            return pages.results

        An attempt that comes later is given the items that are left, and finds in `results` what
        was made of the others. Where the attempt is to stop, or its time is short, it ends between
        two items, with all kept that is done; where an item raises, those before it are kept, too.

        Args:
            items: in the same order in each attempt. Finished items are kept by their number.
            every: so many items, at least 1; at most as many are done again after a kill.
            phase: the name of this loop, where the handler has several, one after the other. One
                that an earlier attempt came to the end of is skipped.

        Raises:
            InvalidRequestError: an argument is not what it may be.
            CheckpointMisusedError: the loop is within another one, has the phase of another one,
                or the handler uses `checkpoint` as well.
            And in the loop, what `checkpoint` raises.
        """
        return Checkpointed(items, self._checkpoints.loop(every, phase))

    def acheckpointed(
        self, items: Iterable[T] | AsyncIterable[T], every: int = 5, phase: str = ""
    ) -> AsyncCheckpointed[T]:
        """Do what `checkpointed` does for `async for`; the items may be an async iterable."""
        return AsyncCheckpointed(items, self._checkpoints.loop(every, phase))

    def continue_later(self) -> NoReturn:
        """End the attempt here; the next one begins at once, from the last checkpoint.

        For a step that takes longer than an attempt may. It uses up no retry; the third attempt in
        a row that ends so without a new iteration (`checkpoint`) has failed. Where the attempt is
        to stop anyway, it is stopped.

        Raises:
            ContinuedError: always. Let it pass: what the handler returns in its place counts.
        """
        raise ContinuedError

    @contextlib.contextmanager
    def limit(self, name: str) -> Iterator[None]:
        """Hold a limit of the step while the block runs: `with ctx.limit("openai"):`.

        It is one of the `limits` of the step, with `per_call=True`, by its key as it stands there.
        Where it has no room, the attempt ends: its run waits without a lease, and the next attempt
        has the slot when it begins. A call that `once` has recorded is not made again.

        Args:
            name: the key of the limit, as its entry has it.

        Raises:
            ContinuedError: it has no room. Let it pass.
            UnknownLimitError: the step declares no such limit; the run is blocked until it does.
        """
        if not self._calls.take_limit(name):
            raise ContinuedError
        wait: float | None = None
        try:
            yield
        except Exception as error:
            wait = wait_of_rate_limit(error)
            raise
        finally:
            self._calls.free_limit(name, wait)

    @contextlib.asynccontextmanager
    async def alimit(self, name: str) -> AsyncIterator[None]:
        """Do what `limit` does, without blocking the handler's loop."""
        if not await in_thread(partial(self._calls.take_limit, name)):
            raise ContinuedError
        wait: float | None = None
        try:
            yield
        except Exception as error:
            wait = wait_of_rate_limit(error)
            raise
        finally:
            await in_thread(partial(self._calls.free_limit, name, wait))

    def _keep_rest(self) -> None:
        """Keep what the loops have done and not kept yet, now that the handler has raised.

        What it raised is what counts: where this fails, a line of the log says so.
        """
        try:
            self._checkpoints.keep_rest()
        except Exception as error:  # noqa: BLE001 - it must not take the place of the handler's
            self.log.warning("what was done since the last checkpoint is not kept: %r", error)

    def once(
        self,
        key: str,
        call: Callable[..., T],
        *args: Any,
        request: object = None,
        on_unknown: OnUnknown = "repeat",
        keep: bool = False,
        **kwargs: Any,
    ) -> T:
        """Return the recorded result of a call, or make the call and record its result.

        The result is recorded beside the run, with one write; an attempt that comes later gets it
        without calling. Both get the value as its annotated type reads it from JSON; where the
        call has no annotation, as plain JSON values. An error of the call is not recorded.

        Args:
            key: the name of the call within its step and trial: 1 to 128 printable characters.
            call: what is called, with `args` and `kwargs`.
            args: of the call. Within an attempt, a key has one call and one set of arguments.
            request: what the result depends on, JSON values: a recorded result counts only for the
                same request; for another one the call is made, and paid, again. Leave out what
                differs in each attempt, such as times and random ids.
            on_unknown: where an attempt died between the call and its record: make it again, block
                the run and `ask` a person whether it happened, or `fail` the step for good.
            keep: the result outlasts the step: a trial that comes later gets it too, and it stays
                in the run.
            kwargs: of the call.

        Raises:
            InvalidRequestError: the key or the call cannot be used; it was not called.
            CallKeyReusedError: the key stands for another call; it was not called.
            CallResultError, TooLargeError: the result cannot be kept, or the recorded one is not
                of the type that the call returns now.
            TooManyCallsError: a step keeps at most 10,000 results; it was not called.
            LeaseLostError, StoreUnavailableError: as `checkpoint`.
        """
        asked = OnceCall(key, call, args, kwargs, request=request, on_unknown=on_unknown, keep=keep)
        result: T = self._once.make(asked)
        return result

    @overload
    async def aonce(
        self,
        key: str,
        call: Callable[..., Awaitable[T]],
        *args: Any,
        request: object = None,
        on_unknown: OnUnknown = "repeat",
        keep: bool = False,
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def aonce(
        self,
        key: str,
        call: Callable[..., T],
        *args: Any,
        request: object = None,
        on_unknown: OnUnknown = "repeat",
        keep: bool = False,
        **kwargs: Any,
    ) -> T: ...

    async def aonce(
        self,
        key: str,
        call: Callable[..., Any],
        *args: Any,
        request: object = None,
        on_unknown: OnUnknown = "repeat",
        keep: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Do what `once` does, without blocking the handler's loop.

        A coroutine function is called in the loop, any other in its own thread.
        """
        asked = OnceCall(key, call, args, kwargs, request=request, on_unknown=on_unknown, keep=keep)
        return await self._once.amake(asked)

    @overload
    def map(
        self,
        call: Callable[[I], T],
        items: Iterable[I],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[MapOptions[I]],
    ) -> list[T]: ...

    @overload
    def map(
        self,
        call: Callable[[I], T],
        items: Iterable[I],
        *,
        return_exceptions: Literal[True],
        **options: Unpack[MapOptions[I]],
    ) -> list[T | Exception]: ...

    def map(
        self,
        call: Callable[[I], T],
        items: Iterable[I],
        *,
        return_exceptions: bool = False,
        **options: Unpack[MapOptions[I]],
    ) -> list[T] | list[T | Exception]:
        """Call a function with each item, some at a time, as `once` does; return all results.

        Each result is recorded under a key of its item, so an attempt that comes later makes only
        the calls that are left. Where the time of the attempt is short it ends, and the next one
        goes on; where it is to stop, no item is begun. What is under way ends first, and is
        recorded; so it does before an error is raised.

            summaries = ctx.map(summarise, given.pages, at_once=10, retry=3)

        Args:
            call: is given one item.
            items: JSON values or models; at most 10,000. They are taken one by one.
            return_exceptions: a call that fails for good leaves its error in the place of its
                result, and is made again by a later attempt, if there is one; else the first error
                ends the map.
            options: `at_once`, `retry`, `key`, `name`, `keep`: see `MapOptions`.

        Returns:
            The results, in the order of the items.

        Raises:
            InvalidRequestError: an argument is not what it may be, or two items have one key.
            ContinuedError: the next attempt goes on. Let it pass.
            And the first error of a call, and what `once` raises.
        """
        ends = self.map_as_completed(call, items, return_exceptions=return_exceptions, **options)
        found = sorted(ends, key=_index)
        return [one.error or cast(T, one.result) for one in found]

    def map_as_completed(
        self,
        call: Callable[[I], T],
        items: Iterable[I],
        *,
        return_exceptions: bool = False,
        **options: Unpack[MapOptions[I]],
    ) -> Iterator[Mapped[T]]:
        """Do what `map` does, and yield what became of each item as it comes."""
        return self._mapped(call, items, tolerant=return_exceptions, **options).run()

    @overload
    async def amap(
        self,
        call: Callable[[I], Awaitable[T]],
        items: Iterable[I],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[MapOptions[I]],
    ) -> list[T]: ...

    @overload
    async def amap(
        self,
        call: Callable[[I], Awaitable[T]],
        items: Iterable[I],
        *,
        return_exceptions: Literal[True],
        **options: Unpack[MapOptions[I]],
    ) -> list[T | Exception]: ...

    async def amap(
        self,
        call: Callable[[I], Any],
        items: Iterable[I],
        *,
        return_exceptions: bool = False,
        **options: Unpack[MapOptions[I]],
    ) -> list[Any]:
        """Do what `map` does, in the handler's loop.

        A coroutine function is called in the loop, any other in its own thread. Where the map is
        cancelled, what is under way ends first, and is recorded.
        """
        ends = self.amap_as_completed(call, items, return_exceptions=return_exceptions, **options)
        async with contextlib.aclosing(ends):
            found = sorted([one async for one in ends], key=_index)
        return [one.error or one.result for one in found]

    def amap_as_completed(
        self,
        call: Callable[[I], Any],
        items: Iterable[I],
        *,
        return_exceptions: bool = False,
        **options: Unpack[MapOptions[I]],
    ) -> AsyncGenerator[Mapped[Any]]:
        """Do what `map_as_completed` does, for `async for`."""
        return self._mapped(call, items, tolerant=return_exceptions, **options).arun()

    def _mapped(
        self, call: Callable[[I], Any], items: Iterable[I], **options: Any
    ) -> MappedCalls[Any]:
        from leasehold.worker.context.mapped import MappedCalls  # noqa: PLC0415 - few steps map

        return MappedCalls(
            call,
            items,
            once=self._once,
            pace=self._pace,
            calls=self._calls,
            report=self.progress,
            **options,
        )

    def continue_if_short(self) -> None:
        """End the attempt here if its time is short and it has made calls; the next one goes on.

        For a handler whose work is calls by `once`: call it between two of them, while none is
        under way. Called in the handler's own thread; in any other one it does nothing.

        Raises:
            ContinuedError: the attempt ends here. Let it pass.
        """
        self._pace.looks_back = True
        self._checkpoints.end_if_short(self._once.made > 0)

    def spend(self, *, tokens: int = 0, usd: float = 0.0) -> None:
        """Note what the work has cost, beside what was noted before.

        It is kept with the step over all its attempts, trials and retries. Within a call by `once`
        it is recorded with the result: an attempt that is given the result is spared it.

        Args:
            tokens: how many more were used.
            usd: how many US dollars more were spent.

        Raises:
            InvalidRequestError: an amount is not a number from 0 on; nothing was noted.
            BudgetExceededError: the budget of the run, or of its step, is used up, and no call is
                being made here: the attempt ends, and the run is blocked. Let it pass.
        """
        spend = checked_spend(tokens, usd)
        if not (spend.is_nothing or add_to_call(spend)):
            self._calls.note_spend(spend)
            if self._calls.facts.has_budget:
                self._calls.check_budget()

    def progress(self, fraction: float, message: str = "") -> None:
        """Record how far the work is: a share of 1, and a short message.

        Args:
            fraction: from 0 to 1.
            message: for people; a long one is shortened.

        Raises:
            InvalidRequestError: the share is above 1 or no number, or the message is no text.
        """
        if not isinstance(fraction, SupportsFloat):
            value = type(fraction).__name__
            raise InvalidRequestError(field="fraction", value=value, allowed="a share from 0 to 1")
        if not isinstance(message, str):
            value = type(message).__name__
            raise InvalidRequestError(field="message", value=value, allowed="a text")
        share = float(fraction)
        if share > _WHOLE:
            allowed = f"a share from 0 to 1; of 100 it is {share:g}/100"
            raise InvalidRequestError(field="fraction", value=fraction, allowed=allowed)
        clean = message.encode("utf-8", "replace").decode()  # a file name may be no text
        share = min(1.0, max(0.0, share)) if share == share else 0.0  # noqa: PLR0124 - NaN
        self._calls.note_progress(Progress(fraction=share, message=progress_message(clean)))

    def mark_bootstrap_complete(self, tool_name: str) -> None:
        """Say that the handler makes its first tool call now: what it does first is over.

        An agent loads models and opens connections before it works. How long each of both takes
        is kept with the step, so that a limit can be set for each. The first call counts.

        Args:
            tool_name: the tool, for people: whatever it is, a measure ends no attempt. Of a longer
                name the first 128 characters are kept.
        """
        if not self._is_booted:
            self._is_booted = True
            self._calls.mark_bootstrap(
                one_line(safe_text(tool_name, MAX_TOOL_CHARS), MAX_TOOL_CHARS)
            )

    def mark_execution_complete(self) -> None:
        """Say that there is a result: what the handler does from now on is clean-up.

        Without `mark_bootstrap_complete` before it, it does nothing, and the log says so once.
        """
        if self._has_result:
            return
        if self._is_booted:
            self._has_result = True
            self._calls.mark_execution()
        elif not self._is_warned:
            self._is_warned = True
            self.log.warning(
                "ctx.mark_execution_complete() does nothing: ctx.mark_bootstrap_complete(tool) "
                "comes first"
            )

    def output_of(self, step_type: str) -> Any:
        """Return the output of an earlier step of this run, as plain JSON values.

        Where there are trials it is that of this trial, else that of the one before; behind the
        reviewer it is that of the trial that counts.

        Args:
            step_type: the name of that step in the pipeline.

        Raises:
            InvalidRequestError: no earlier step of that name has an output.
            StoreUnavailableError: it could not be read. Let it pass: the attempt is deferred.
        """
        return pydantic_core.from_json(self._calls.output_of(step_type))

    async def aoutput_of(self, step_type: str) -> Any:
        """Do what `output_of` does, without blocking the handler's loop."""
        return await in_thread(partial(self.output_of, step_type))

    def status_of(self, step_type: str) -> OutputStatus:
        """Return the status of what `output_of` returns: SUCCESS, or PARTIAL.

        Args:
            step_type: the name of that step in the pipeline.

        Raises:
            InvalidRequestError: no earlier step of that name has an output.
        """
        return cast(OutputStatus, self._calls.status_of(step_type))

    @overload
    def wait_for(
        self,
        name: str,
        model: type[T],
        *,
        timeout: timedelta | None = None,
        otherwise: Literal["block", "fail"] = "block",
    ) -> T: ...

    @overload
    def wait_for(
        self,
        name: str,
        model: type[T],
        *,
        timeout: timedelta | None = None,
        otherwise: Literal["continue"],
    ) -> T | None: ...

    @overload
    def wait_for(
        self,
        name: str,
        *,
        timeout: timedelta | None = None,
        otherwise: Literal["block", "continue", "fail"] = "block",
    ) -> Any: ...

    def wait_for(
        self,
        name: str,
        model: Any = None,
        *,
        timeout: timedelta | None = None,
        otherwise: Literal["block", "continue", "fail"] = "block",
    ) -> Any:
        """Return the signal of a name, or end the attempt here: the next one is given it.

        A signal that came before is there at once. Else nothing runs and nothing is paid for until
        it comes (`leasehold signal RUN NAME --json VALUE`), for minutes or for months; the handler
        begins anew then, with what it has kept by `once` and `checkpoint`. In one step and trial, a
        name stands for one signal: each attempt is given the same.

        Args:
            name: of the signal; 1 to 128 of `a-z A-Z 0-9 _ - .`.
            model: what the value has to fit, as a pydantic model or a type; None: plain JSON
                values. One that does not fit is refused, and the step waits on.
            timeout: how long it waits; at least a second. None: for any time.
            otherwise: what then: `block` has a person decide, and a late signal still counts;
                `continue` returns None; `fail` raises WaitTimedOutError.

        Raises:
            InvalidRequestError: an argument is not what it may be.
            SignalAwaitedError: the attempt ends here. Let it pass.
            WaitTimedOutError: no signal came in time; no retry can repair that.
        """
        from leasehold.worker.context.signals import awaited  # noqa: PLC0415 - few steps wait

        return awaited(self._calls, name, model, timeout=timeout, otherwise=otherwise)

    @overload
    async def await_for(
        self,
        name: str,
        model: type[T],
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as of wait_for
        otherwise: Literal["block", "fail"] = "block",
    ) -> T: ...

    @overload
    async def await_for(
        self,
        name: str,
        model: type[T],
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as of wait_for
        otherwise: Literal["continue"],
    ) -> T | None: ...

    @overload
    async def await_for(
        self,
        name: str,
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as of wait_for
        otherwise: Literal["block", "continue", "fail"] = "block",
    ) -> Any: ...

    async def await_for(
        self,
        name: str,
        model: Any = None,
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - as of wait_for
        otherwise: Literal["block", "continue", "fail"] = "block",
    ) -> Any:
        """Do what `wait_for` does, without blocking the handler's loop."""
        from leasehold.worker.context.signals import awaited  # noqa: PLC0415 - few steps wait

        wait = partial(awaited, self._calls, name, model, timeout=timeout, otherwise=otherwise)
        return await in_thread(wait)


def _index(mapped: Mapped[Any]) -> int:
    return mapped.index
