"""The output of a place that works item by item, where some items may fail."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel

U = TypeVar("U")


class FailedItem(BaseModel):
    """An item that failed, and was left.

    Args:
        index: its number in the list that was given, from 0.
        code: why, for machines.
        message: the same for people.
    """

    index: int
    code: str
    message: str


class Outcomes(BaseModel, Generic[U]):
    """The outcomes of the items of a list, where an `Each` tolerates that some fail.

    Args:
        ok: what was made of those that did not fail, in the order of the items.
        failed: those that did.
    """

    ok: list[U]
    failed: list[FailedItem]
