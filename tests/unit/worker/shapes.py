"""The handlers that a catalog may name, and those that it may not."""

from __future__ import annotations

import dataclasses
import enum
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pydantic
from pydantic import BaseModel

from leasehold import StepContext, StepResult

if TYPE_CHECKING:
    from decimal import Decimal


class Order(BaseModel):
    amount: int


class Later(BaseModel):
    of: Decimal


def plain(ctx: StepContext, given: Order) -> Order:
    return given


def add(more: int, ctx: StepContext, given: Order, times: int = 1) -> Order:
    return Order(amount=given.amount + more * times)


add_two = functools.partial(add, 2)
add_six = functools.partial(add_two, times=3)


class Adding:
    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, ctx: StepContext, given: Order) -> StepResult[Order]:  # noqa: ARG002
        return StepResult(Order(amount=given.amount + self.more))


class AddingLater:
    async def __call__(self, ctx: StepContext, given: Order) -> Order:  # noqa: ARG002
        return Order(amount=given.amount + 5)


add_four = Adding(4)
add_five_later = AddingLater()
adds_again = functools.partial(add_five_later)
short = lambda ctx, given: given  # noqa: E731, ARG005 - a shape that people write


def of_any_number(*values: Order) -> Order:
    return values[1]


def of_the_rest(ctx: StepContext, *values: Order, **_: Any) -> Order:
    return values[0]


def without_hints(ctx, given):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    return given


def needs_more(ctx: StepContext, given: Order, more: int) -> Order:
    return given


def by_name(ctx: StepContext, *, given: Order) -> Order:
    return given


def unknown_here(ctx: StepContext, given: Decimal) -> Decimal:
    return given


def unknown_inside(ctx: StepContext, given: Later) -> Later:
    return given


def no_model(ctx: StepContext, given: threading.Thread) -> Any:
    return None


def in_pieces(ctx: StepContext, given: Order) -> Iterator[Order]:
    yield given


async def in_pieces_later(ctx: StepContext, given: Order) -> AsyncIterator[Order]:
    yield given


@dataclasses.dataclass
class Team:
    team: str = "red"
    size: int = 7
    id: UUID = dataclasses.field(default_factory=lambda: UUID(int=7))


class Tier(enum.Enum):
    FREE = "free"


class Defaults(BaseModel):
    amount: int
    model: str = "small"
    tier: Tier = Tier.FREE
    asked_by: str = pydantic.Field(default="ada", validation_alias="asked-by")
    of: Team = pydantic.Field(default_factory=Team)


def of_defaults(ctx: StepContext, given: Defaults) -> str:
    return given.model


class Picky(BaseModel):
    amount: int

    @pydantic.field_validator("amount")
    @classmethod
    def known(cls, amount: int) -> int:
        """Raise another error than ValueError, as code with a slip does."""
        raise KeyError(f"api_key=sk-{'planted7f3a' * 4}\nno price of {amount}")


def of_picky(ctx: StepContext, given: Picky) -> Picky:
    return given


partly = functools.partial(in_pieces)
number = 5
