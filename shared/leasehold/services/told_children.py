"""What a commit owes to the children of a run, and to the parent of one; `engine` carries it out.

A person's operation on a parent, such as a cancellation, is passed on to each child, and noted once
all have it. The end of
a child is a hint to its parent: its alarm asks as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.children import waits_for_person
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import ChildEnd, Telling
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Document
from leasehold.errors import UnknownRunError
from leasehold.ports.documents import Committed, Documents, Query, Snapshot
from leasehold.services.paging import SCAN_PAGE, scan

#: What is read of an open child.
_OPEN: Final = ("status", "paused", "block", "position.wait", "parent", "lane", "fencingToken")


class Parts(NamedTuple):
    """The parts of an engine that are needed here.

    Args:
        documents: where runs lie.
        new_id: returns an id that nothing has.
        rules: returns the rules for a transition that may dispatch.
        commit: applies a transition to a run.
    """

    documents: Documents
    new_id: Callable[[], str]
    rules: Callable[[], Rules]
    commit: Callable[[str, Transition], Committed[Change]]


def tell_children(parts: Parts, owed: Telling, publish: Callable[[Change], object]) -> None:
    """Have all open children of a run hear a word, and note it with the run.

    A lane may give some of its items to a new one meanwhile, which has heard what it has heard: so
    they are looked for until all have heard it.

    Args:
        parts: of an engine.
        owed: the word.
        publish: announces a change of a child, and carries out what it owes.

    Raises:
        StoreUnavailableError: not all are known to have heard it; it is owed still.
    """
    hear = partial(lifecycle.hear, parent_id=owed.run_id, word=owed.word, say=owed.say)
    while deaf := [one for one in _open(parts, owed.run_id) if _has_to_hear(one, owed)]:
        for one in deaf:
            publish(parts.commit(one.ref.id, partial(hear, rules=parts.rules())).answer)
    note = partial(lifecycle.note_told, rules=parts.rules(), word=owed.word)
    publish(parts.commit(owed.run_id, note).answer)


def _has_to_hear(child: Snapshot, owed: Telling) -> bool:
    link: Any = child.document.get("parent")
    return isinstance(link, dict) and int(link.get("heard") or 0) < owed.word


def _open(parts: Parts, parent_id: str) -> list[Snapshot]:
    query = Query("runs", equal={"openOf": parent_id}, limit=SCAN_PAGE, fields=_OPEN)
    return list(scan(parts.documents, query))


def follow_end(parts: Parts, end: ChildEnd) -> Change | None:
    """Return the change that takes half of what the longest lane has ahead for a new lane.

    Only a lane that is through takes items, once, and only where each lane has begun: another one
    waits for a worker already. None: nothing is worth it.
    """
    child = end.child
    if child.lane is None or child.status is not RunStatus.COMPLETED or end.is_repeated:
        return None
    others = [one for one in _open(parts, _parent_of(child)) if _is_beside(one.document, child)]
    if any(not one.document.get("fencingToken") for one in others):
        return None
    by_rest = sorted(others, key=lambda one: _ahead(one.document), reverse=True)
    if not by_rest or _ahead(by_rest[0].document) < child.lane.batch:
        return None
    take = partial(
        lifecycle.take_items,
        rules=parts.rules(),
        run_id=f"l-{parts.new_id()}",
        nonce=parts.new_id(),
    )
    try:
        change = parts.commit(by_rest[0].ref.id, take).answer
    except UnknownRunError:  # it was purged meanwhile
        return None
    return change if change.changed else None


def is_worth_asking(parts: Parts, child: Manifest) -> bool:
    """Return whether no other child of the place is at work: the last one to end asks."""
    others = (one.document for one in _open(parts, _parent_of(child)))
    return all(waits_for_person(one) for one in others if _is_beside(one, child))


def _parent_of(child: Manifest) -> str:
    return "" if child.parent is None else child.parent.run_id


def _is_beside(other: Document, child: Manifest) -> bool:
    link: Any = other.get("parent")
    known = child.parent
    if known is None or not isinstance(link, dict):
        return False
    return (link.get("life"), link.get("place")) == (known.life, known.place)


def _ahead(child: Document) -> int:
    """Return how many items a lane has beside those at hand."""
    lane: Any = child.get("lane")
    if not isinstance(lane, dict):
        return 0
    ahead = [int(number) for number in lane.get("ahead") or ()]
    return max(0, sum(ahead[1::2]) - sum(ahead[::2]) - int(lane.get("batch") or 1))
