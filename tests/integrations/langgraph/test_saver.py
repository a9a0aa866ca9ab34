"""The saver records each change once, and reads all of them back."""

from __future__ import annotations

import asyncio
import json
import operator
from itertools import chain
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from leasehold.errors import ContinuedError, InvalidRequestError, TooLargeError
from leasehold.integrations.langgraph import LeaseholdSaver
from leasehold.testing import step_context


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


def compiled(saver: LeaseholdSaver, **nodes: Any) -> Any:
    """Return a graph of nodes, one after the other."""
    builder = StateGraph(Notes)
    for before, (name, node) in zip([START, *nodes], nodes.items(), strict=False):
        builder.add_node(name, node)
        builder.add_edge(before, name)
    builder.add_edge(list(nodes)[-1], END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_an_attempt_goes_on_where_the_one_before_was_ended(durability: str) -> None:
    made = []

    def node(name: str, *, ends: bool = False) -> Any:
        async def body(_: Notes) -> dict[str, Any]:
            made.append(name)
            if ends and made.count(name) == 1:
                raise ContinuedError
            return {"notes": [name]}

        return body

    calls: dict[str, Any] = {}
    for attempt in (1, 2):
        with step_context(attempt=attempt, calls=calls) as ctx:
            saver = LeaseholdSaver(ctx)
            graph = compiled(saver, a=node("a"), b=node("b", ends=True), c=node("c"))
            going = graph.ainvoke({"notes": ["given"]}, saver.config(), durability=durability)
            if attempt == 1:
                with pytest.raises(ContinuedError):
                    asyncio.run(going)
                calls = dict(ctx.recorded.calls)
            else:
                state = asyncio.run(going)

    assert state == {"notes": ["given", "a", "b", "c"]}
    assert made == ["a", "b", "b", "c"]


def test_invocations_on_one_thread_follow_each_other_and_none_is_made_again() -> None:
    made = []

    def echo(state: Notes) -> dict[str, Any]:
        made.append(state["notes"][-1])
        return {"notes": [state["notes"][-1].upper()]}

    calls: dict[str, Any] = {}
    for attempt in (1, 2, 3):
        with step_context(attempt=attempt, calls=calls) as ctx:
            saver = LeaseholdSaver(ctx)
            graph = compiled(saver, echo=echo)
            for text in ("one", "two")[:attempt]:
                state = graph.invoke({"notes": [text]}, saver.config(text))
            calls |= ctx.recorded.calls

    assert made == ["one", "two"]
    assert state == {"notes": ["one", "ONE", "two", "TWO"]}


def test_a_person_answers_in_a_later_attempt() -> None:
    def ask(_: Notes) -> dict[str, Any]:
        return {"notes": [interrupt("May I?")]}

    with step_context() as ctx:
        saver = LeaseholdSaver(ctx)
        state = compiled(saver, ask=ask).invoke({"notes": []}, saver.config())
        assert [each.value for each in state["__interrupt__"]] == ["May I?"]
        calls = ctx.recorded.calls
    with step_context(attempt=2, calls=calls) as ctx:
        saver = LeaseholdSaver(ctx)
        graph = compiled(saver, ask=ask)
        assert graph.invoke({"notes": []}, saver.config())["__interrupt__"]
        state = graph.invoke(Command(resume="Yes."), saver.config())

    assert state == {"notes": ["Yes."]}


def stored(turns: int) -> int:
    """Return the bytes that a conversation of so many turns stores."""
    with step_context() as ctx:
        saver = LeaseholdSaver(ctx)
        builder = StateGraph(Notes)
        builder.add_node("say", lambda state: {"notes": [f"{len(state['notes']):04} {'x' * 500}"]})
        builder.add_edge(START, "say")
        builder.add_conditional_edges(
            "say", lambda state: "say" if len(state["notes"]) < turns else END
        )
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"notes": []}, {**saver.config(), "recursion_limit": 1000})
        return len(json.dumps(ctx.recorded.calls))


def test_what_is_stored_is_linear_in_the_length_of_a_conversation() -> None:
    assert stored(120) < 2.2 * stored(60)


def test_a_record_of_an_attempt_that_has_lost_its_lease_is_read_and_the_newest_counts() -> None:
    """Both attempts write: each finds the other's record under its number, and takes the next."""

    def echo(state: Notes) -> dict[str, Any]:
        return {"notes": [state["notes"][-1].upper()]}

    with step_context() as ctx:
        lost, newer = LeaseholdSaver(ctx), LeaseholdSaver(ctx)
        compiled(lost, echo=echo).invoke({"notes": ["one"]}, lost.config("one"))
        state = compiled(newer, echo=echo).invoke({"notes": ["two"]}, newer.config("two"))
        calls = ctx.recorded.calls
    with step_context(attempt=2, calls=calls) as ctx:
        saver = LeaseholdSaver(ctx)
        graph = compiled(saver, echo=echo)
        assert graph.get_state(saver.config("one")).values == {"notes": ["one", "ONE"]}
        assert graph.get_state(saver.config("two")).values == state == {"notes": ["two", "TWO"]}
        thread = {"configurable": {"thread_id": saver.config()["configurable"]["thread_id"]}}
        assert graph.get_state(thread).values == state


#: How many changes of a delta channel there are between two times that it is kept as a whole.
SNAPSHOT = 5


class Said(TypedDict):
    said: Annotated[
        list[str],
        DeltaChannel(lambda said, more: [*said, *chain(*more)], snapshot_frequency=SNAPSHOT),
    ]
    heard: list[str]


@pytest.mark.parametrize("turns", [3, 12], ids=["no snapshot", "a snapshot"])
def test_pruning_keeps_what_the_newest_checkpoint_is_computed_from(turns: int) -> None:
    """A delta channel is kept as changes of earlier checkpoints, and as a whole now and then."""
    calls: dict[str, Any] = {}
    states, counts = [], []
    for attempt in (1, 2):
        with step_context(attempt=attempt, calls=calls) as ctx:
            saver = LeaseholdSaver(ctx)
            builder = StateGraph(Said)
            builder.add_node("say", lambda state: {"said": [str(len(state["said"]))]})
            builder.add_edge(START, "say")
            builder.add_conditional_edges(
                "say", lambda state: "say" if len(state["said"]) < turns else END
            )
            graph = builder.compile(checkpointer=saver)
            if attempt == 1:
                graph.invoke({"said": [], "heard": []}, saver.config())
            place = {"configurable": {"thread_id": f"{ctx.run_id}/{ctx.step_type}"}}
            for prune in (False, attempt == 1):
                if prune:
                    saver.prune([place["configurable"]["thread_id"]])
                states.append(graph.get_state(place).values["said"])
                counts.append(len(list(saver.list(place))))
            calls |= ctx.recorded.calls

    assert states == [[str(number) for number in range(turns)]] * 4
    assert counts[0] == turns + 2
    assert counts[1] == counts[2] == counts[3]
    assert (counts[1] < counts[0]) is (turns > SNAPSHOT)


def test_a_way_of_pruning_that_is_unknown_is_refused() -> None:
    with step_context() as ctx, pytest.raises(InvalidRequestError, match="keep_latest or delete"):
        LeaseholdSaver(ctx).prune(["t"], strategy="keep_last")


def test_a_message_that_a_node_has_changed_is_recorded_as_it_is_now() -> None:
    with step_context() as ctx:
        saver = LeaseholdSaver(ctx)
        thread = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        message = HumanMessage("My number is 42.")
        for number, text in enumerate(("My number is 42.", "My number is secret."), 1):
            message.content = text
            values = {"messages": [message, HumanMessage("Hello.")]}
            checkpoint = {**CHECKPOINT[0], "id": f"{number}", "channel_values": values}
            versions = {"messages": f"{number}"}
            checkpoint["channel_versions"] = versions
            saver.put(thread, checkpoint, CHECKPOINT[1], versions)

        kept = LeaseholdSaver(ctx).get_tuple(thread)

    assert kept is not None
    texts = [each.text for each in kept.checkpoint["channel_values"]["messages"]]
    assert texts == ["My number is secret.", "Hello."]


def test_a_step_and_its_checkpoint_are_one_record() -> None:
    async def note(state: Notes) -> dict[str, Any]:
        return {"notes": ["noted"]}

    with step_context() as ctx:
        saver = LeaseholdSaver(ctx)
        graph = compiled(saver, a=note, b=note, c=note)
        asyncio.run(graph.ainvoke({"notes": []}, saver.config(), durability="sync"))

    assert len(ctx.recorded.calls) <= 3 + 2  # of the input, and of the beginning


def test_after_a_record_that_failed_nothing_is_saved() -> None:
    """Changes that were to be written together with it would be lost silently."""
    with step_context() as ctx:
        saver = LeaseholdSaver(ctx)
        config = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, *CHECKPOINT)

        for value in ("x" * 17_000_000, "small"):
            with pytest.raises(TooLargeError):
                saver.put_writes(config, [("notes", [value])], "task")


CHECKPOINT: Any = (
    {
        "v": 1, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {},
        "versions_seen": {}, "updated_channels": None,
    },
    {"source": "input", "step": -1},
    {},
)  # fmt: skip
