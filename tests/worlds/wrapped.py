"""A part of an engine in the place of another: a store, artifacts, a clock."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Wrapped(Generic[T]):
    """Does as the inner part does, but for what a subclass has it do."""

    def __init__(self, inner: T) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
