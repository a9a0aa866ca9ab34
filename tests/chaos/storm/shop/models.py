"""The models of the steps of the shop."""

from __future__ import annotations

from pydantic import BaseModel


class Order(BaseModel):
    """What a run is given: how many pages there are, and how long each call takes."""

    pages: int
    call_seconds: float


class Gathered(BaseModel):
    """The pages, as the first step made them."""

    order: Order
    pages: list[str]


class Refined(BaseModel):
    """The answers, as the second step got them."""

    order: Order
    answers: list[str]
