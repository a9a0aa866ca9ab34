"""`ctx.once`: what a call gave is recorded, and takes its place from then on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, Field

from leasehold.errors import (
    CallKeyReusedError,
    CallResultError,
    InvalidRequestError,
    LeaseholdError,
    TooLargeError,
    TooManyCallsError,
    UnrestorableResultError,
)
from leasehold.testing import step_context
from leasehold.testing.contexts import RecordingContext


class Page(BaseModel):
    title: str = Field(alias="pageTitle")
    links: tuple[str, ...] = ()


class Client:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def ask(self, *words: Any) -> str:
        self.calls.append(words)
        return f"{len(self.calls)}: {words}"

    async def aask(self, *words: Any) -> str:
        await asyncio.sleep(0)
        return self.ask(*words)

    def page(self, title: str) -> Page:
        self.calls.append((title,))
        return Page(pageTitle=title, links=("a", "b"))


@pytest.fixture
def ctx() -> Iterator[RecordingContext]:
    with step_context() as ctx:
        yield ctx


@pytest.fixture
def client() -> Client:
    return Client()


# -- the value ---------------------------------------------------------------------------------


def test_a_call_is_made_once_and_its_result_recorded(ctx: RecordingContext, client: Client) -> None:
    first = ctx.once("greeting", client.ask, "hi", 3)
    second = ctx.once("greeting", client.ask, "hi", 3)

    assert first == second == "1: ('hi', 3)"
    assert client.calls == [("hi", 3)]
    assert ctx.recorded.calls == {"greeting": "1: ('hi', 3)"}


def test_an_attempt_that_comes_later_gets_the_result_without_calling(client: Client) -> None:
    with step_context(attempt=2, calls={"greeting": "hello", "page": {"pageTitle": "x"}}) as ctx:
        assert ctx.once("greeting", client.ask, "hi") == "hello"
        assert ctx.once("page", client.page, "x") == Page(pageTitle="x")
        assert ctx.once("new", client.ask, "ho") == "1: ('ho',)"

    assert ctx.recorded.calls == {"new": "1: ('ho',)"}


def test_both_get_the_value_as_its_type_reads_it_from_json(
    ctx: RecordingContext, client: Client
) -> None:
    first = ctx.once("page", client.page, "x")
    second = ctx.once("page", client.page, "x")

    assert first == second == Page(pageTitle="x", links=("a", "b"))
    assert ctx.recorded.calls == {"page": {"pageTitle": "x", "links": ["a", "b"]}}


def test_a_call_that_does_not_say_what_it_returns_gives_plain_json_values(
    ctx: RecordingContext,
) -> None:
    pair = (Page(pageTitle="x"), 1)

    assert ctx.once("pair", lambda: pair) == [{"pageTitle": "x", "links": []}, 1]
    assert ctx.once("nothing", print) is None
    assert ctx.once("nothing", print) is None


def test_named_arguments_are_those_of_a_partial(ctx: RecordingContext) -> None:
    assert ctx.once("number", partial(int, base=8), "17") == 15


def test_what_a_call_raises_is_not_recorded(ctx: RecordingContext, client: Client) -> None:
    def fail_first(word: str) -> str:
        answer = client.ask(word)
        if len(client.calls) == 1:
            raise OSError("busy")
        return answer

    with pytest.raises(OSError, match="busy"):
        ctx.once("greeting", fail_first, "hi")
    assert ctx.recorded.calls == {}
    assert ctx.once("greeting", fail_first, "shorter") == "2: ('shorter',)"


# -- coroutines and threads ----------------------------------------------------------------------


def test_a_coroutine_function_is_called_in_the_loop_and_a_function_in_a_thread(
    ctx: RecordingContext, client: Client
) -> None:
    def ask_where(word: str) -> list[str]:
        return [client.ask(word), threading.current_thread().name]

    async def handler() -> list[Any]:
        return [
            await ctx.aonce("one", client.aask, "hi"),
            await ctx.aonce("one", client.aask, "hi"),
            await ctx.aonce("two", ask_where, "ho"),
            await ctx.aonce("three", lambda: client.aask("he")),
        ]

    got = asyncio.run(handler())

    name = threading.current_thread().name
    assert got[:2] == ["1: ('hi',)"] * 2
    assert got[2][0] == "2: ('ho',)"
    assert got[2][1] != name
    assert got[3] == "3: ('he',)"
    assert list(ctx.recorded.calls) == ["one", "two", "three"]


def test_of_tasks_with_one_key_one_makes_the_call(ctx: RecordingContext, client: Client) -> None:
    async def handler() -> list[str]:
        same = [ctx.aonce("greeting", client.aask, "hi") for _ in range(5)]
        return await asyncio.gather(*same, ctx.aonce("other", client.aask, "ho"))

    got = asyncio.run(handler())

    assert len({*got}) == 2
    assert sorted(client.calls) == [("hi",), ("ho",)]


def test_of_threads_with_one_key_one_makes_the_call(ctx: RecordingContext, client: Client) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def ask(word: str) -> str:
        entered.set()
        assert go_on.wait(60)
        return client.ask(word)

    got: list[str] = []
    threads = [
        threading.Thread(target=lambda: got.append(ctx.once("greeting", ask, "hi")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(60)
    go_on.set()
    for thread in threads:
        thread.join(60)

    assert got == ["1: ('hi',)"] * 4
    assert client.calls == [("hi",)]


def test_a_handler_that_waited_for_a_failed_call_makes_it_itself(
    ctx: RecordingContext, client: Client
) -> None:
    async def fail_first(word: str) -> str:
        answer = await client.aask(word)
        if len(client.calls) == 1:
            raise OSError("busy")
        return answer

    async def handler() -> list[Any]:
        both = [ctx.aonce("greeting", fail_first, "hi") for _ in range(2)]
        return await asyncio.gather(*both, return_exceptions=True)

    failed, made = asyncio.run(handler())

    assert (str(failed), made) == ("busy", "2: ('hi',)")


def test_a_task_that_is_cancelled_leaves_its_turn_to_the_next(
    ctx: RecordingContext, client: Client
) -> None:
    async def handler() -> str:
        began = asyncio.Event()

        async def hang() -> str:
            began.set()
            await asyncio.Event().wait()
            return "never"

        first = asyncio.create_task(ctx.aonce("greeting", hang))
        await began.wait()
        gives_up = asyncio.create_task(ctx.aonce("greeting", client.aask, "hi"))
        waits = asyncio.create_task(ctx.aonce("greeting", client.aask, "hi"))
        await asyncio.sleep(0)
        gives_up.cancel()
        first.cancel()
        await asyncio.gather(first, gives_up, return_exceptions=True)
        return await waits

    assert asyncio.run(handler()) == "1: ('hi',)"


def test_a_task_that_is_cancelled_while_its_result_is_written_has_it_written(
    ctx: RecordingContext, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next caller finds the result, and does not pay again."""
    writing, go_on = threading.Event(), threading.Event()
    calls = ctx._calls  # noqa: SLF001 - where it is written
    record = calls.record_result

    def record_slowly(*words: Any, **more: Any) -> None:
        writing.set()
        assert go_on.wait(60)
        record(*words, **more)

    monkeypatch.setattr(calls, "record_result", record_slowly)

    async def handler() -> list[Any]:
        first = asyncio.create_task(ctx.aonce("greeting", client.aask, "hi"))
        await asyncio.to_thread(writing.wait, 60)
        first.cancel()
        second = asyncio.create_task(ctx.aonce("greeting", client.aask, "hi"))
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, second, return_exceptions=True)

    cancelled, found = asyncio.run(handler())

    assert (type(cancelled), found) == (asyncio.CancelledError, "1: ('hi',)")
    assert client.calls == [("hi",)]


# -- what is refused -----------------------------------------------------------------------------


def test_a_key_stands_for_one_call_and_its_arguments(ctx: RecordingContext, client: Client) -> None:
    words = ["a"]
    ctx.once("greeting", client.ask, words)
    words.append("b")

    with pytest.raises(CallKeyReusedError, match="'greeting' stands for another call"):
        ctx.once("greeting", client.ask, words)
    with pytest.raises(CallKeyReusedError):
        ctx.once("greeting", client.page, "a")
    assert ctx.once("greeting", client.ask, ["a"]) == "1: (['a'],)"


def test_a_key_stands_for_its_named_arguments_too(ctx: RecordingContext) -> None:
    def ask(word: str, *, tone: str) -> str:
        return f"{word}, {tone}"

    assert ctx.once("greeting", ask, "hello", tone="warm") == "hello, warm"
    with pytest.raises(CallKeyReusedError):
        ctx.once("greeting", ask, "hello", tone="cold")


def test_what_a_lambda_reads_around_it_is_an_argument(
    ctx: RecordingContext, client: Client
) -> None:
    """The same key in a loop would give the first answer to every question."""

    def ask(word: str) -> str:
        return ctx.once("ask", lambda: client.ask(word))

    assert ask("one") == ask("one")
    with pytest.raises(CallKeyReusedError):
        ask("two")
    assert client.calls == [("one",)]


async def _later() -> str:
    return "later"


def _numbers() -> Iterator[int]:
    yield 1


def _odd() -> Client:
    return Client()


def _makes_a_coroutine() -> Any:
    return _later()


def _unknown() -> Missing:  # type: ignore[name-defined]  # noqa: F821
    return None


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (_later, "await ctx.aonce"),
        (_makes_a_coroutine, "await ctx.aonce"),
        (_numbers, "a generator yields several"),
        ("ask", "a function, and its arguments"),
        (_odd, "of this one: Unable to generate pydantic-core schema"),
        (_unknown, "of this one: name 'Missing' is not defined"),
    ],
)
def test_what_cannot_be_made_once_is_refused_in_a_line(
    ctx: RecordingContext, call: Any, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match="call is") as refused:
        ctx.once("greeting", call)

    assert problem in str(refused.value)
    assert ctx.recorded.calls == {}


@pytest.mark.parametrize(
    ("key", "args"), [("", ()), ("k" * 129, ()), ("a\nb", ()), ("\ud800", ()), (3, ())]
)
def test_a_key_is_a_short_printable_text(
    ctx: RecordingContext, client: Client, key: Any, args: Any
) -> None:
    with pytest.raises(InvalidRequestError, match="key is"):
        ctx.once(key, client.ask, *args)
    assert client.calls == []


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else []


def _says_page() -> Page:
    return {"pageTitle": 3}  # type: ignore[return-value]


def _says_number() -> float:
    return float("nan")


def _says_short() -> Annotated[str, Field(max_length=3)]:
    return "password=hunter2-and-more"


def test_as_many_digits_as_can_be_read_are_kept(ctx: RecordingContext) -> None:
    """Also more of them, in a text."""
    assert ctx.once("ask", lambda: [10**4299, "1" * 5000]) == [10**4299, "1" * 5000]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (object, "cannot be kept as JSON"),
        (lambda: float("nan"), "result is NaN: JSON has no such number"),
        (lambda: {"items": [{"score": 1}, {"score": float("-inf")}]}, "result.items[1].score is -"),
        (_says_number, "result is NaN: JSON has no such number"),
        (lambda: iter([1.0, float("nan")]), "holds NaN or infinity, which JSON does not have"),
        (lambda: "\ud800", "cannot be kept as JSON"),
        (
            lambda: {"n": [0, 10**4300]},
            "result.n[1] is a number of more than 4,300 digits, which no",
        ),
        (lambda: iter([10**4300]), "too long a number"),
        (lambda: _nested(250), "nested more than 198 levels deep"),
        (_says_page, "is not the Page that it is annotated to return: pageTitle"),
        (_says_short, "is not the str that it is annotated to return"),
    ],
)
def test_a_result_that_json_cannot_keep_is_refused(
    ctx: RecordingContext, call: Any, problem: str
) -> None:
    with pytest.raises(CallResultError, match="The result of the call 'ask' ") as no:
        ctx.once("ask", call)

    assert problem in str(no.value)
    assert "hunter2" not in str(no.value)
    assert ctx.recorded.calls == {}


T = TypeVar("T")


@dataclass
class Reply(Generic[T]):
    """The return values of agents of several libraries."""

    output: T
    tokens: int = 0


@dataclass
class Envelope:
    """A type that says nothing of its content."""

    output: Any


class Agent:
    """An agent whose `run` is annotated as libraries do it."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, words: str) -> Reply[Any]:
        self.runs += 1
        return Reply({"is": Page(pageTitle=words)})

    async def run_of(self, words: str) -> Reply[T]:  # type: ignore[type-var]
        return await self.run(words)

    async def run_bare(self, words: str) -> list[Reply]:  # type: ignore[type-arg]
        return [await self.run(words)]

    async def page(self, words: str) -> Page:
        self.runs += 1
        return Page(pageTitle=words)

    async def page_reply(self, words: str) -> Reply[Page]:
        return Reply(await self.page(words))

    async def enveloped(self, words: str) -> Envelope:
        return Envelope(await self.page(words))

    async def enveloped_json(self, words: str) -> Envelope:
        return Envelope({"title": words})


@pytest.mark.parametrize("run", ["run", "run_of", "run_bare"])
def test_a_call_whose_result_cannot_be_restored_is_not_made(
    ctx: RecordingContext, run: str
) -> None:
    """Its `.output` would be a dict; the error says what to record in its place."""
    agent = Agent()

    with pytest.raises(InvalidRequestError, match=r"\(await agent.run\(...\)\).output") as no:
        asyncio.run(ctx.aonce("ask", getattr(agent, run), "hello"))

    assert "does not say what it holds, which would be a dict" in str(no.value)
    assert agent.runs == 0
    assert ctx.recorded.calls == {}


def test_a_result_that_would_come_back_as_a_dict_is_refused(ctx: RecordingContext) -> None:
    """What only the result shows, it shows when the call is made: once."""
    agent = Agent()

    with pytest.raises(UnrestorableResultError, match=r"result.output is of the class Page") as no:
        asyncio.run(ctx.aonce("ask", agent.enveloped, "hello"))

    assert "(await agent.run(...)).output" in str(no.value)
    assert (no.value.is_mistake, agent.runs) == (True, 1)
    assert ctx.recorded.calls == {}


def test_a_result_that_says_what_it_holds_is_restored(ctx: RecordingContext) -> None:
    agent = Agent()

    reply = asyncio.run(ctx.aonce("a", agent.page_reply, "hello"))
    plain = asyncio.run(ctx.aonce("b", agent.enveloped_json, "hello"))

    assert reply == Reply(Page(pageTitle="hello"))
    assert plain == Envelope({"title": "hello"})


def test_a_result_that_an_earlier_version_recorded_is_given_back() -> None:
    agent = Agent()

    with step_context(calls={"ask": {"output": {"is": 1}, "tokens": 2}}) as ctx:
        found = asyncio.run(ctx.aonce("ask", agent.run, "hello"))

    assert (found.tokens, agent.runs) == (2, 0)


def test_a_result_that_can_be_read_but_once_is_recorded_whole(ctx: RecordingContext) -> None:
    assert ctx.once("pages", lambda: (page for page in "abc")) == ["a", "b", "c"]
    assert ctx.once("by name", lambda: {"all": map(str.upper, "abc")}) == {"all": ["A", "B", "C"]}


def test_large_texts_leave_room_for_further_calls(ctx: RecordingContext) -> None:
    """As those of a run do, which are kept as files."""
    ctx.checkpoint(1, "x" * 300_000)
    assert len(ctx.once("large", lambda: "x" * 300_000)) == 300_000
    assert ctx.once("next", lambda: 1) == 1


def test_a_result_is_at_most_as_large_as_an_output(ctx: RecordingContext) -> None:
    with pytest.raises(TooLargeError, match="the result of the call 'ask' has 16777219 bytes"):
        ctx.once("ask", lambda: "x" * (16 * 1024 * 1024 + 1))


def test_a_recorded_value_that_does_not_fit_any_more_is_a_clear_error(client: Client) -> None:
    with (
        step_context(calls={"page": {"title": 3}}) as ctx,
        pytest.raises(CallResultError, match="does not fit Page: pageTitle: Field required") as no,
    ):
        ctx.once("page", client.page, "x")

    assert "to make the call again, give it another key" in str(no.value)
    assert client.calls == []


def test_a_call_that_wants_its_own_key_does_not_wait_for_itself(
    ctx: RecordingContext, client: Client
) -> None:
    def again() -> str:
        return ctx.once("ask", client.ask, "hi")

    async def from_the_loop() -> str:
        async def hang() -> str:
            return ctx.once("later", client.ask, "hi")

        return await ctx.aonce("later", hang)

    for make in (lambda: ctx.once("ask", again), lambda: asyncio.run(from_the_loop())):
        with pytest.raises(InvalidRequestError, match="does not use its own key"):
            make()


def test_there_is_room_for_ten_thousand_results_and_no_call_is_made_beyond(client: Client) -> None:
    """Those of earlier attempts are among them, and one that is made takes no more room than it."""
    with step_context(calls={f"asked {number}": number for number in range(9_800)}) as ctx:
        for number in range(200):
            ctx.once(f"ask {number}", client.ask, number)

        with pytest.raises(TooManyCallsError, match="a step keeps at most 10,000"):
            ctx.once("one more", client.ask, "x")
    assert len(client.calls) == 200


def test_calls_under_way_have_their_room(
    ctx: RecordingContext, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is made and then has no room would be paid for nothing."""
    monkeypatch.setattr("leasehold.attempt.recorded_calls.MAX_RESULTS_PER_STEP", 100)

    async def handler() -> list[Any]:
        calls = [ctx.aonce(f"ask {number}", client.aask, number) for number in range(104)]
        return await asyncio.gather(*calls, return_exceptions=True)

    got = asyncio.run(handler())

    refused = [one for one in got if isinstance(one, LeaseholdError)]
    assert (len(refused), len(client.calls)) == (4, 100)


def test_calls_that_failed_need_no_room(
    ctx: RecordingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that refuses a hundred requests must not use up the results of a step."""
    monkeypatch.setattr("leasehold.attempt.recorded_calls.MAX_RESULTS_PER_STEP", 3)

    def refuse() -> str:
        raise ValueError("busy")

    for number in range(10):
        with pytest.raises(ValueError, match="busy"):
            ctx.once(f"refused {number}", refuse)

    assert [ctx.once(f"taken {number}", str, number) for number in range(3)] == ["0", "1", "2"]
    with pytest.raises(TooManyCallsError):
        ctx.once("taken 3", str, 3)


def test_threads_that_use_a_context_first_at_the_same_time_share_what_is_made_of_it() -> None:
    """What `once` needs is made when it is first used; two of it would make a call twice."""
    client, together = Client(), threading.Barrier(8)
    with step_context() as ctx:

        def ask() -> None:
            together.wait(60)
            ctx.once("words", client.ask, "a")

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert client.calls == [("a",)]


# -- arguments ---------------------------------------------------------------------------------


@dataclass
class Size:
    words: int = 100


def ask(
    prompt: str,
    *,
    model: str = "small",
    pages: list[Page] | None = None,
    page: Page | None = None,
    size: Size | None = None,
) -> str:
    ASKED.append(prompt)
    return f"{model}: {prompt}"


ASKED: list[object] = []


def test_arguments_are_given_by_name(ctx: RecordingContext) -> None:
    assert ctx.once("a", ask, "hi", model="large") == "large: hi"
    assert asyncio.run(ctx.aonce("b", ask, prompt="ho")) == "small: ho"


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((5,), {}, "prompt of ask is 'int'; allowed: what it is annotated as: the value itself: "),
        ((object(),), {}, "prompt of ask is 'object'; allowed: what it is annotated as"),
        ((iter("hi"),), {}, "prompt of ask is 'str_ascii_iterator'; allowed: what it is annotated"),
        (("hi",), {"model": None}, "model of ask is 'NoneType'; allowed: what it is annotated as"),
        (("hi",), {"pages": [{"pageTitle": "x"}, {}]}, "pages of ask is 'list'; allowed: what it"),
        (
            ("hi",),
            {"page": {"pageTitle": "x"}},
            "page of ask is 'dict'; allowed: what it is annotated as: an instance of Page",
        ),
        (
            ("hi",),
            {"size": {"words": 5}},
            "size of ask is 'dict'; allowed: what it is annotated as: an instance of Size",
        ),
        ((), {}, "arguments of ask is '0'; allowed: ask(prompt: 'str', *, model: 'str' = 'small'"),
        (("hi",), {"modell": "x"}, "got an unexpected keyword argument 'modell'"),
    ],
)
def test_a_wrong_argument_is_refused_before_it_costs_anything(
    ctx: RecordingContext, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    ASKED.clear()

    with pytest.raises(InvalidRequestError) as refused:
        ctx.once("answer", ask, *args, **kwargs)

    assert words in refused.value.message
    assert "\n" not in refused.value.message
    assert ASKED == []
    assert ctx.once("answer", ask, "hi") == "small: hi"


def test_a_call_that_takes_a_model_or_a_dict_gets_either(ctx: RecordingContext) -> None:
    """Pydantic makes the model of a dict, as that comes first: what fits was taken for a misfit."""

    def title(page: Page | dict[str, Any]) -> str:
        return str(page["pageTitle"]) if isinstance(page, dict) else page.title

    def kind(page: Annotated[Annotated[Page | dict[str, Any], "words"] | None, ""]) -> str:
        return type(page).__name__

    def either(page: Page | Size) -> str:
        return type(page).__name__

    plain = {"pageTitle": "plain"}
    assert ctx.once("plain", title, plain) == "plain"
    assert ctx.once("made", title, Page(pageTitle="made")) == "made"
    assert ctx.map(title, [{"pageTitle": "mapped"}]) == ["mapped"]
    assert ctx.once("kind", kind, plain) == "dict"
    with pytest.raises(InvalidRequestError, match="an instance of Page"):
        ctx.once("either", either, plain)


class FakeClient:
    """The client of a test, in place of that of a library."""


def test_what_a_call_may_well_take_is_not_refused(ctx: RecordingContext) -> None:
    """A number in digits, a client of a test, a generator, and more arguments than are named."""

    def many(count: int, client: Client, words: list[str], more: Any, *rest: int) -> list[str]:
        return [*words, str(count), str(more), type(client).__name__, *map(str, rest)]

    letters = (letter for letter in "ab")
    made = ctx.once("many", many, "3", FakeClient(), letters, object, "x")

    assert made == ["a", "b", "3", "<class 'object'>", "FakeClient", "x"]


@pytest.mark.parametrize("on_unknown", ["ask", "fail"])
def test_a_call_that_must_not_be_repeated_is_made_and_recorded(on_unknown: Any) -> None:
    with step_context() as ctx:
        assert ctx.once("charge", lambda: "charged", on_unknown=on_unknown) == "charged"

    assert ctx.recorded.calls == {"charge": "charged"}
