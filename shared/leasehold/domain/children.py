"""Children: small runs that one place of a run's plan waits for, each with its own document.

A place that runs `Each` has lanes: runs that do its items one after the other. One that runs
`Parallel` has a run for each step, and one of `Child` a run of another pipeline. Nothing counts
them. A parent that waits has an alarm; the end of each child asks whether any is still open, and
so does the alarm. Only the documents of the children say which have ended.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import AwareDatetime

from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.stored import Document, Ref, Stored, replace

#: No place has more items, and none has more children at once: they begin with one commit.
MAX_ITEMS: Final = 100_000
MAX_LANES: Final = 100

#: A document of given items has so many of them, and so many bytes, unless a batch has more.
_CHUNK_ITEMS: Final = 200
_CHUNK_BYTES: Final = 200 * 1024
#: And never more than this: Firestore takes 1 MiB, with the names of the fields.
_MAX_CHUNK_BYTES: Final = 1000 * 1024

#: The block of a parent whose children all wait for a person, or ended without what it needs.
CHILDREN_BLOCKED: Final = "children_blocked"
ITEMS_MISSING: Final = "items_missing"
#: The block of a child that would have been given up: its parent is not, so a person decides.
CHILD_FAILED: Final = "child_failed"


class EachRule(Stored):
    """How a place runs its items, as it is pinned at the start of a run.

    Args:
        at_once: how many lanes there are at most.
        tolerate: which share of the items may fail; 0: none.
        batch: how many items one attempt is given.
    """

    at_once: int = 10
    tolerate: float = 0.0
    batch: int = 1


class ChildLink(Stored):
    """The link of a child to its parent.

    Args:
        run_id: the parent.
        life: its mark.
        place: the place of its plan that waits.
        name: of this child among the children of the place.
        generation: that of the parent while it waits.
        queue: where the parent is asked.
        deadline_s: how long a queue listens for the answer.
        nonce: of the parent's tasks.
        since: when the children of the place began. Among tasks that are due, theirs go by it: what
            began first is joined first.
        heard: the number of the last word of the parent that was heard.
    """

    run_id: str
    life: str
    place: str
    name: str
    generation: int
    queue: str
    deadline_s: int
    nonce: str
    since: AwareDatetime | None = None
    heard: int = 0


#: Items by their numbers: from the first to before the second.
Span = tuple[int, int]


class Lane(Stored):
    """The items that a lane still has to do.

    Args:
        ahead: the items, the one at hand first: the first of some, and the one behind the last, in
            turn; see `todo`.
        batch: how many one attempt is given.
        items: how many the place has in all.
        in_chunk: how many items one document of given items has.
        tolerated: how many items may fail, of all lanes; so a lane goes on after as many.
        done: how many are done.
        failed: how many have failed, and were left.
    """

    ahead: tuple[int, ...] = ()
    batch: int
    items: int
    in_chunk: int
    tolerated: int = 0
    done: int = 0
    failed: int = 0

    @property
    def todo(self) -> tuple[Span, ...]:
        """The items, from one to before another, those at hand first."""
        return tuple(zip(self.ahead[::2], self.ahead[1::2], strict=True))

    @property
    def unit(self) -> Span:
        """The items that the attempt at hand is given."""
        first, end = self.todo[0]
        return first, min(first + self.batch, end)

    @property
    def left(self) -> int:
        """How many items are not done, those at hand among them."""
        return sum(end - first for first, end in self.todo)

    @property
    def waiting(self) -> tuple[Span, ...]:
        """The items behind those at hand."""
        (first, end), *others = self.todo
        following = first + self.batch
        return ((following, end), *others) if following < end else tuple(others)

    def without_unit(self, *, failed: bool) -> Lane:
        """Return the lane after the items at hand, which are done, or have failed."""
        first, end = self.unit
        done, left = (0, end - first) if failed else (end - first, 0)
        return replace(
            self, ahead=flat(self.waiting), done=self.done + done, failed=self.failed + left
        )


def halved(lane: Lane) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return what a lane keeps, and half of its items not at hand, which another one may take.

    Nothing is to be taken where that is less than one attempt's items.
    """
    first, end = lane.unit
    ahead = lane.waiting
    waiting = sum(stop - start for start, stop in ahead)
    take = waiting // 2 // lane.batch * lane.batch or (waiting if waiting <= lane.batch else 0)
    kept: list[Span] = [(first, end)]
    taken: list[Span] = []
    keep = waiting - take
    for start, stop in ahead:
        here = min(keep, stop - start)
        keep -= here
        if here:
            kept.append((start, start + here))
        if start + here < stop:
            taken.append((start + here, stop))
    return joined(kept), joined(taken)


def flat(spans: tuple[Span, ...]) -> tuple[int, ...]:
    """Return spans as a lane keeps them: no store takes lists of lists."""
    return tuple(number for span in spans for number in span)


def joined(spans: list[Span]) -> tuple[Span, ...]:
    """Return spans, those that touch as one."""
    found: list[Span] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def spread(todo: list[Span], lanes: int, batch: int) -> list[tuple[Span, ...]]:
    """Return the items of each lane, as even as batches allow; none is without items."""
    count = sum(stop - start for start, stop in todo)
    units = -(-count // batch)
    lanes = max(1, min(lanes, units))
    shares = [units // lanes + (number < units % lanes) for number in range(lanes)]
    result: list[tuple[Span, ...]] = []
    ahead = list(todo)
    for share in shares:
        want, mine = share * batch, []
        while want and ahead:
            start, stop = ahead.pop(0)
            cut = min(stop, start + want)
            mine.append((start, cut))
            want -= cut - start
            if cut < stop:
                ahead.insert(0, (cut, stop))
        if mine:
            result.append(joined(mine))
    return result


class Children(Stored):
    """The state of a parent's children while it waits for them, and once they are through.

    Args:
        kind: `each`, `parallel` or `child`.
        items: how many items there are in all; 0: they are no items.
        runs: how many children there were at first.
        since: when they began.
        look_at: when the parent asks by itself.
        looks: how often it did.
        word: how many words it has had for them: pause, resume, cancel, retry.
        say: the last one.
        told: up to which of them all children have been told.
        over: whether they are through, and the next attempt gathers what they made.
    """

    kind: str
    items: int = 0
    runs: int
    since: AwareDatetime
    look_at: AwareDatetime
    looks: int = 0
    word: int = 0
    say: str | None = None
    told: int = 0
    over: bool = False


def with_word(children: Children | None, say: str) -> Children | None:
    """Return what a parent knows of its children once a person has said a word for all of them."""
    if children is None or children.over:
        return children
    return replace(children, word=children.word + 1, say=say)


class ItemsOf(Stored):
    """A run whose finished items count for the place that a run was recreated at."""

    run_id: str
    life: str
    place: str


class ItemError(Stored):
    """Why an item failed."""

    type: str
    code: str
    message: str


class ItemRecord(Stored):
    """What became of one item, or of one batch: written once, by the commit of its lane.

    Args:
        first: the number of the item, or of the first of a batch.
        count: how many there are.
        text, ref: what was made of it; of a batch, a list.
        output_status: how good that is.
        error: why there is none; None: there is one.
        is_batch: whether what was made is a list of as many, also of one: a later deploy may have
            other batches. None: as its place says, by an earlier version.
        lane: the run that did it.
        attempts: how many attempts it took.
        at: when.
    """

    first: int
    count: int = 1
    text: str | None = None
    ref: str | None = None
    output_status: str | None = None
    error: ItemError | None = None
    is_batch: bool | None = None
    lane: str
    attempts: int = 1
    at: AwareDatetime

    @property
    def value(self) -> KeptValue:
        """The output of the item."""
        return KeptValue(text=self.text, ref=self.ref)


class GivenItem(Stored):
    """An item as it is given to a handler: its JSON text, or the artifact that holds it."""

    text: str | None = None
    ref: str | None = None

    @property
    def value(self) -> KeptValue:
        """The item as a value."""
        return KeptValue(text=self.text, ref=self.ref)


class GivenItems(Stored):
    """Some items of a place, in one document that is written before its lanes begin."""

    items: tuple[GivenItem, ...]


def items_of(run_id: str) -> str:
    """Return the collection of the items of a run: what is given, and what became of it."""
    return f"runs/{run_id}/items"


def prefix_of_items(life: str, place: str) -> str:
    """Return what the names of the records of a place begin with."""
    return f"{life}-{place}-i"


def item_ref(run_id: str, life: str, place: str, first: int) -> Ref:
    """Return the name of the record of an item."""
    return Ref(items_of(run_id), f"{prefix_of_items(life, place)}{first:06d}")


def given_ref(run_id: str, life: str, place: str, chunk: int) -> Ref:
    """Return the name of a document of given items."""
    return Ref(items_of(run_id), f"{life}-{place}-g{chunk:06d}")


def items_in_chunk(largest: int, batch: int) -> int:
    """Return how many items one document of given items has.

    A retry writes these documents again, and so may a late process of another version; lanes find
    their items by this number. So it comes out the same for the same items in all versions.

    Args:
        largest: the bytes of the largest item that is kept in them.
        batch: how many items one attempt is given; they are in one document where they fit.
    """
    fits = min(_CHUNK_ITEMS, _CHUNK_BYTES // largest)
    in_chunk = max(1, fits // batch) * batch
    return in_chunk if in_chunk * largest <= _MAX_CHUNK_BYTES else fits


def waits_for_person(child: Document) -> bool:
    """Return whether an open child, as it is stored, waits for a person and nothing else."""
    block: Any = child.get("block") or {}
    at: Any = child.get("position") or {}
    wait = at.get("wait")
    is_open = wait is not None and not wait.get("isOver")  # a signal has it go on
    is_blocked = child.get("status") == "BLOCKED" and block.get("lookAt") is None
    return bool(child.get("paused")) or (is_blocked and not is_open)
