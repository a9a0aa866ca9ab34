"""Responses of models cost dollars by the user's own prices, and by those of a list otherwise."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold import testing
from leasehold.integrations.durable import durable
from leasehold.integrations.prices import Used, listed_price
from leasehold.testing import step_context
from tests.integrations.conftest import HERE

answering: Final[Any] = importlib.import_module(f"tests.integrations.{HERE}.answering")
USED: Final = Used("gpt-4o", input_tokens=1_000, output_tokens=500)


@pytest.mark.parametrize("pipeline", answering.SPENDING)
def test_what_the_user_says_of_a_response_counts(tmp_path: Path, pipeline: str) -> None:
    with testing.engine(answering, tmp_path) as engine:
        run = engine.start(pipeline, {"folder": str(tmp_path), "usd": 0.5})
        done = engine.run_until_settled(run.run_id)

    spend = done.steps[pipeline].spend
    assert spend is not None
    assert (spend.tokens, spend.usd) == (answering.TOKENS * answering.TURNS, 0.5 * answering.TURNS)


@pytest.mark.parametrize(
    ("used", "usd"),
    [
        (USED, 0.0075),
        (USED._replace(model="openai/gpt-4o"), 0.0075),
        (USED._replace(cache_read_tokens=1_000), 0.00625),
        (USED._replace(model="scripted"), None),
    ],
    ids=["by name", "by the name of a provider, too", "from a cache", "an unknown model"],
)
def test_the_list_knows_models_by_their_names(used: Used, usd: float | None) -> None:
    assert listed_price(used) == (None if usd is None else pytest.approx(usd))


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        (lambda _: None, "it has no known price"),
        (
            lambda _: -1.0,
            "its price cannot be had: InvalidRequestError: [invalid_request] usd is -1.0",
        ),
        (lambda used: {}[used.model], "its price cannot be had: KeyError: 'gpt-4o'"),
    ],
    ids=["an unknown model", "no amount", "an error"],
)
def test_a_response_whose_price_is_not_known_is_kept_and_that_is_said_once(
    price: Any, problem: str
) -> None:
    with step_context() as ctx, durable(ctx, price=price) as step:
        for number in range(2):
            ctx.once(f"model {number}", lambda: step.spend(USED))

    assert ctx.recorded.spent.tokens == 2 * 1_500
    assert ctx.recorded.spent.usd == 0
    (line,) = ctx.recorded.messages
    assert problem in line


def test_a_block_within_another_one_has_its_prices() -> None:
    with step_context() as ctx, durable(ctx, price=lambda _: 1.0), durable(ctx) as step:
        ctx.once("model", lambda: step.spend(USED))

    assert ctx.recorded.spent.usd == 1
