"""A part of an engine in the place of another: a store, artifacts, a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from leasehold.domain.stored import Ref
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Committed, Documents, Snapshot

T = TypeVar("T")


class Wrapped(Generic[T]):
    """Does as the inner part does, but for what a subclass has it do."""

    def __init__(self, inner: T) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class AnswerLost(Wrapped[Documents]):
    """A store where one of the next commits stands, and its answer is lost.

    Args:
        inner: the store.
        number: which one; the first is 1.
    """

    def __init__(self, inner: Documents, number: int = 1) -> None:
        super().__init__(inner)
        self.left = number

    @property
    def is_lost(self) -> bool:
        """Whether it has come to that commit."""
        return self.left <= 0

    def transact(self, *given: Any, **named: Any) -> Committed[Any]:
        committed = self.inner.transact(*given, **named)
        self.left -= 1
        if self.left == 0:
            raise StoreUnavailableError(store="store", problem="the answer was lost")
        return committed


class Overtaken(Wrapped[Documents]):
    """A store at which others are faster: they do something in the middle of what one does.

    Args:
        inner: the store.
        collection: whose documents it is about.
        do: it happens once, behind the first read of one of them.
        before: it happens before such a write in place of that; the first is 1.
    """

    def __init__(
        self, inner: Documents, collection: str, do: Callable[[], object], *, before: int = 0
    ) -> None:
        super().__init__(inner)
        self._collection, self._before = collection, before
        self._do = [do]

    def get(self, ref: Ref) -> Snapshot | None:
        found = self.inner.get(ref)
        if ref.collection == self._collection and not self._before and self._do:
            self._do.pop()()
        return found

    def transact(self, ref: Ref, *given: Any, **named: Any) -> Committed[Any]:
        if ref.collection == self._collection:
            self._before -= 1
            if self._before == 0 and self._do:
                self._do.pop()()
        return self.inner.transact(ref, *given, **named)
