"""Limits as an entry declares them, and their keys."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from leasehold import Limit, Registry, StepDispatchEntry
from leasehold.domain.limit import bounds_of
from leasehold.domain.slots import slot_ref
from leasehold.errors import InvalidEntryError, LimitKeyError
from leasehold.registry.pipelines import Catalog


def step(*limits: Any, name: str = "draft", handler: str = "json:loads") -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        limits=limits,
    )


def key(limit: str, given: Any, **labels: str) -> str:
    return Limit(limit, at_once=1).key_for("draft", labels, lambda: given, lambda _: None)


def test_a_key_has_parts_of_the_run() -> None:
    given = {"model": "gpt", "of": {"team": 7}}

    assert key("openai", None) == "openai"
    assert key("model:{given.model}", given) == "model:gpt"
    assert key("{labels.tenant}/{given.of.team}", given, tenant="acme") == "acme/7"


@pytest.mark.parametrize("part", ["../../runs/r-1", "a/b", "模型", "x|y\\", "{given.model}", "'--"])
def test_a_hostile_value_of_a_part_names_no_document_of_another_key(part: str) -> None:
    """The name of a document has a digest of the key in place of it."""
    of_key = slot_ref(key("model:{given.model}", {"model": part}), 7)

    assert re.fullmatch(r"[0-9a-f]{24}-7", of_key.id)
    assert of_key.id != slot_ref("model:gpt", 7).id


def test_a_key_without_a_part_of_the_run_does_not_read_what_is_given() -> None:
    def unread(*_: Any) -> Any:
        raise AssertionError

    assert Limit("openai", at_once=1).key_for("draft", {}, unread, unread) == "openai"


def test_a_model_is_asked_only_for_what_is_not_given() -> None:
    asked: list[Any] = []
    limit = Limit("{given.model}/{given.of.team}", at_once=1)

    def default(names: Any) -> Any:
        asked.append(names)
        return "red"

    found = limit.key_for("draft", {}, lambda: {"model": "gpt", "of": {}}, default)

    assert (found, asked) == ("gpt/red", [["of", "team"]])


@pytest.mark.parametrize(
    ("limit", "given", "problem"),
    [
        ("{given.model}", {}, "given.model is missing"),
        ("{given.model}", [1], "given.model is missing"),
        ("{given.model.name}", {"model": "gpt"}, "given.model.name is missing"),
        (
            "{given.model}",
            {"model": {}},
            "given.model is neither a whole number nor a text of 1 to 200 printable",
        ),
        (
            "{given.model}",
            {"model": True},
            "given.model is neither a whole number nor a text of 1 to 200 printable",
        ),
        (
            "{given.model}",
            {"model": "a\nb"},
            "given.model is neither a whole number nor a text of 1 to 200 printable",
        ),
        ("{given.model}", {"model": "m" * 10_000}, "nor a text of 1 to 200 printable characters"),
        ("{given.model}", {"model": 1.5}, "given.model is neither a whole number nor a text"),
        (
            "{given.model}",
            {"model": "gpt\u202e"},
            "given.model is neither a whole number nor a text",
        ),
        ("{given.model}", {"model": "\ud800"}, "given.model is neither a whole number nor a text"),
        (
            "{given.model}",
            {"model": ""},
            "given.model is neither a whole number nor a text of 1 to 200 printable",
        ),
        ("{labels.tenant}", {}, "labels.tenant is missing"),
        ("{given.model}-model", {"model": "m" * 199}, "longer than 200 characters"),
    ],
)
def test_a_part_that_no_key_can_have_is_refused(limit: str, given: Any, problem: str) -> None:
    with pytest.raises(LimitKeyError, match=problem):
        key(limit, given)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ("openai", r"limits of 'draft' .* is 'openai'; allowed: Limit\(KEY, at_once=…"),
        (Limit("openai"), "a limit with at_once or per_minute"),
        (Limit("", at_once=1), "limits.key"),
        (Limit("a\nb", at_once=1), "limits.key"),
        (Limit("{given}", at_once=1), r"limits.key .* is '\{given\}'; allowed: \{given.FIELD\}"),
        (Limit("{input.model}", at_once=1), r"is '\{input.model\}'"),
        (Limit("{labels.a.b}", at_once=1), r"is '\{labels.a.b\}'"),
        (Limit("{given.model", at_once=1), "a key whose braces are closed"),
        (Limit("openai", at_once=0), "a whole number from 1 to 1,000, or None"),
        (Limit("openai", at_once=True), "a whole number from 1 to 1,000, or None"),
        (Limit("openai", at_once=1001), "a whole number from 1 to 1,000, or None"),
        (Limit("openai", per_minute=-1), "a whole number from 1 to 100,000, or None"),
        (Limit("openai", per_minute=float("nan")), "a whole number"),  # type: ignore[arg-type]
        (Limit("openai", per_minute=1.5), "a whole number"),  # type: ignore[arg-type]
        (Limit("openai", at_once=1, per_call=1), "True or False"),  # type: ignore[arg-type]
        (Limit("openai", at_once=1, adaptive="yes"), "True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_cannot_be_used_is_refused_at_the_catalog(limit: Any, problem: str) -> None:
    with pytest.raises(InvalidEntryError, match=problem):
        step(limit)


def test_a_step_has_each_key_once() -> None:
    with pytest.raises(InvalidEntryError, match="each key once"):
        step(Limit("openai", at_once=1), Limit("openai", per_minute=5))


def test_a_remote_step_takes_no_slots() -> None:
    with pytest.raises(InvalidEntryError, match="a remote worker takes no slots"):
        step(Limit("openai", at_once=1), handler="remote")


def test_steps_that_share_a_key_say_the_same_of_it() -> None:
    steps = [step(Limit("openai", at_once=1)), step(Limit("openai", at_once=2), name="check")]

    with pytest.raises(InvalidEntryError, match="what step 'draft' says of that key: at_once=1"):
        Catalog(steps=Registry("dispatch", steps), pipelines=Registry("pipelines", []))


def test_a_limit_adapts_in_all_steps_that_share_it_or_in_none() -> None:
    steps = [
        step(Limit("openai", at_once=1)),
        step(Limit("openai", at_once=1, adaptive=True), name="check"),
    ]

    with pytest.raises(InvalidEntryError, match="adaptive=False"):
        Catalog(steps=Registry("dispatch", steps), pipelines=Registry("pipelines", []))


def test_one_limit_may_have_both_numbers() -> None:
    limit = Limit("openai", at_once=8, per_minute=600)

    names = [(bound.name, bound.most) for bound in bounds_of(limit, "openai")]

    assert names == [("openai at once", 8), ("openai a minute", 600)]
