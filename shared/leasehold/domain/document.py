"""What a store keeps: documents, named by a collection and an id.

A document is a tree of JSON values and UTC datetimes. `DecideDocument` is the shape of every rule
of the engine as a store sees it: what is stored and the store's time in, what to write out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

Document = Mapping[str, Any]
Answer = TypeVar("Answer")


class Ref(NamedTuple):
    """The name of a document; `collection` may be nested: `runs/r-1/trace`."""

    collection: str
    id: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.id}"


class UnreadableDocument(dict[str, Any]):
    """What a store has in place of a document: only the fields that queries find it by.

    Args:
        problem: why the rest cannot be read.
        fields: what the store can query, as it is stored.
    """

    def __init__(self, problem: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Write(Generic[Answer]):
    """What is to become of a document, and what the caller gets back.

    Args:
        document: stored in place of what is there; None leaves it as it is.
        creates: further documents of the same commit; none of them may exist.
        puts: further documents of the same commit, stored in place of whatever is there. They need
            a `document`: that one's version keeps a commit that is sent twice from storing them in
            place of what somebody made of them since.
        answer: passed through to the caller once the commit stands.
    """

    answer: Answer
    document: Document | None = None
    creates: Mapping[Ref, Document] | None = None
    puts: Mapping[Ref, Document] | None = None

    def __post_init__(self) -> None:
        if self.puts and self.document is None:
            raise ValueError("puts need a document to be stored with")

    @property
    def has_others(self) -> bool:
        """Whether documents beside the one that was decided on are written."""
        return bool(self.creates or self.puts)


#: A pure function of what is stored (None: nothing) and the store's time; it may run several times.
DecideDocument = Callable[[Document | None, datetime], Write[Answer]]
