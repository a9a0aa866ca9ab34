"""Handlers: which shapes are taken, and in which words the others are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from leasehold.domain.result import StepResult
from leasehold.errors import HandlerNotFoundError
from leasehold.worker.context.step_context import StepContext
from leasehold.worker.handler.checks import ImportedHandlerChecks
from leasehold.worker.handler.handlers import handler_of

WANTED = "a handler is a function (ctx, given) that returns its output"
NO_CONTEXT = cast("StepContext", None)  # these handlers do not look at it
UNUSABLE = "its annotations cannot be used"


@dataclass(frozen=True)
class Step:
    handler: str
    step_type: str = "ask"


@dataclass(frozen=True)
class Taken(Step):
    output: str = ""


def shape(name: str) -> Step:
    return Step(f"tests.unit.worker.shapes:{name}")


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("plain", 1),
        ("add_two", 3),
        ("add_six", 7),
        ("add_four", 5),
        ("add_five_later", 6),
        ("adds_again", 6),
        ("of_any_number", 1),
        ("of_the_rest", 1),
    ],
)
def test_what_can_be_called_with_two_arguments_is_a_handler(name: str, amount: int) -> None:
    """It is given what its hints say, wherever the hints stand."""
    handler = handler_of(shape(name))

    answer: Any = handler(NO_CONTEXT, handler.given.validate_json('{"amount": 1}'))

    output = answer.output if isinstance(answer, StepResult) else answer
    assert handler.given_name == "Order"
    assert handler.output.dump_python(output) == {"amount": amount}


@pytest.mark.parametrize("name", ["short", "without_hints"])
def test_a_handler_without_hints_is_given_plain_json(name: str) -> None:
    handler = handler_of(shape(name))

    assert handler(NO_CONTEXT, handler.given.validate_json('{"amount": 1}')) == {"amount": 1}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere", "'tests.unit.worker.shapes' has no 'nowhere'"),
        ("number", "it is of class int; a handler is a function (ctx, given)"),
        (
            "Order",
            f"it is a class; {WANTED}",
        ),
        (
            "in_pieces",
            f"it is a generator function; {WANTED}",
        ),
        (
            "in_pieces_later",
            f"it is a generator function; {WANTED}",
        ),
        (
            "partly",
            f"it is a generator function; {WANTED}",
        ),
        ("needs_more", "it must take two arguments, (ctx, given)"),
        ("by_name", "it must take two arguments, (ctx, given)"),
        ("unknown_here", f"{UNUSABLE}: name 'Decimal' is not defined"),
        ("unknown_inside", f"{UNUSABLE}: name 'Decimal' is not defined"),
        (
            "no_model",
            f"{UNUSABLE}: Unable to generate pydantic-core schema for <class 'threading.Thread'>",
        ),
    ],
)
def test_a_value_that_is_not_a_handler_is_refused_in_one_sentence(name: str, problem: str) -> None:
    with pytest.raises(HandlerNotFoundError) as refused:
        handler_of(shape(name))

    assert refused.value.message == (
        f"Handler 'tests.unit.worker.shapes:{name}' of step 'ask' does not resolve: {problem}."
    )


def test_a_module_that_ends_the_program_does_not() -> None:
    with pytest.raises(HandlerNotFoundError) as refused:
        handler_of(Step("tests.unit.worker.exits:ask"))

    assert refused.value.details["problem"] == (
        "importing 'tests.unit.worker.exits' raised SystemExit: not today, at exits.py:5 (<module>)"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("amount", 3),
        ("model", "small"),
        ("tier", "free"),
        ("asked-by", "ada"),
        ("asked_by", "ada"),
        ("of.team", "red"),
        ("of.size", 7),
        ("of.id", "00000000-0000-0000-0000-000000000007"),
        ("nothing", None),
        ("of.nothing", None),
        ("model.upper", None),
        ("amount.real", None),
    ],
)
def test_a_field_that_is_not_given_has_the_value_that_the_handler_finds(
    path: str, value: Any
) -> None:
    """As JSON has it, so that a run which was given it has the same."""
    found = ImportedHandlerChecks().value_at(shape("of_defaults"), '{"amount": 3}', path.split("."))

    assert found == value


@pytest.mark.parametrize(
    ("name", "given"), [("of_defaults", "{}"), ("is_missing", "{}"), ("of_picky", '{"amount": 1}')]
)
def test_no_value_is_found_where_no_handler_is_or_nothing_that_fits_it(
    name: str, given: str
) -> None:
    assert ImportedHandlerChecks().value_at(shape(name), given, ["model"]) is None


def test_a_validator_that_raises_is_a_value_that_does_not_fit() -> None:
    """Such a start was a failure of the server, and the line of the command had the secret."""
    step, checks = Taken("tests.unit.worker.shapes:of_picky"), ImportedHandlerChecks()

    misfit = checks.problem_with(step, '{"amount": 1}')
    refused = checks.problem_with_output(step, '{"amount": 1}')

    assert misfit is not None
    assert refused is not None
    words = "its validation raised KeyError: 'api_key=[redacted]"
    assert misfit.model == "Picky"
    assert misfit.problem.startswith(words)
    assert (misfit.count, [issue["type"] for issue in misfit.issues]) == (1, ["KeyError"])
    assert (refused.code, refused.type) == ("invalid_output", "KeyError")
    assert refused.message.startswith(f"The output of step ask does not fit: {words}")
