"""Child runs: how they are started, and how their outputs are gathered.

A parent's attempt at such a place makes the children and ends; once they are through, another one
gathers. In between nothing of the parent is at work. It hears of the ends of its children by
tasks that are hints, and asks by its alarm as well (`ask`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import floor
from typing import Any, Final

import pydantic_core

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.values import load, put
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import values_folder
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.children import (
    CHILDREN_BLOCKED,
    ITEMS_MISSING,
    MAX_ITEMS,
    ChildLink,
    EachRule,
    GivenItem,
    GivenItems,
    ItemRecord,
    Lane,
    Span,
    flat,
    given_ref,
    item_ref,
    items_in_chunk,
    items_of,
    joined,
    prefix_of_items,
    spread,
    waits_for_person,
)
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, digest
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import MAX_INLINE_BYTES, Manifest, manifest_of, read_as
from leasehold.domain.manifest_parts import ErrorRecord, Place, step_type_at
from leasehold.domain.printable import counted
from leasehold.domain.result import Begun, Failed, Finished, Incomplete, Result, Unable
from leasehold.domain.spend import BUDGET_EXCEEDED, total_of
from leasehold.domain.status import BlockCode, RunStatus
from leasehold.domain.stored import Document, StoredDocument, Write, make, replace
from leasehold.errors import ItemsRefusedError, UnknownKeyError, UnknownPipelineError
from leasehold.ports.documents import Committed, Query, Snapshot
from leasehold.services.children_budget import over_budget, share_again, share_of
from leasehold.services.engine import Engine
from leasehold.services.paging import SCAN_PAGE, WHOLE_RUNS, scan

#: So many of these documents are kept here, as lanes take their items in order.
_MAX_CHUNKS_KEPT: Final = 64
#: So many items or children are named to people.
_MAX_ITEMS_NAMED: Final = 5


def at_place(engine: Engine, attempt: Attempt, place: Place, read: Callable[[], str]) -> Result:
    """Return what becomes of an attempt at a place that has children.

    Args:
        engine: the parts.
        attempt: the attempt.
        place: what runs there.
        read: reads what the place is given.

    Raises:
        StoreUnavailableError, ArtifactNotFoundError: what it needs could not be read or kept.
    """
    run = attempt.manifest
    if run.position.children is not None:
        result = _gathered(engine, run, place)
        if isinstance(result, Finished):  # else the next attempt that gathers counts it
            attempt.tally.note_spend(total_of(child.spend for child in _children(engine, run)))
        return result
    text = read()
    if run.budget is not None and (over := over_budget(run, _children(engine, run))):
        return Incomplete(over, BUDGET_EXCEEDED)
    try:
        if place.each is not None:
            return _lanes(engine, attempt, place, place.each, text)
        return _others(engine, run, place, text)
    except ItemsRefusedError as error:
        return Unable(BlockCode.INPUT_MISMATCH, ErrorRecord.of(error))
    except (UnknownKeyError, UnknownPipelineError) as error:
        return Unable(BlockCode.STEP_UNKNOWN, ErrorRecord.of(error))


# The split of a list: its items lie beside the run, in documents of some items each, so that no
# lane reads the whole list for each of its items.


def _lanes(engine: Engine, attempt: Attempt, place: Place, rule: EachRule, text: str) -> Result:
    run = attempt.manifest
    items = _items(run, text)
    done = _finished(engine, run)
    todo = _missing(len(items), done)
    if not todo:
        return _joined_items(engine, run, rule, len(items), list(done.values()))
    in_chunk = _keep_given(engine, run, items, rule.batch)
    lane = Lane(
        batch=rule.batch,
        items=len(items),
        in_chunk=in_chunk,
        tolerated=floor(rule.tolerate * len(items)),
    )
    link = _link(run, "")
    lanes = spread(todo, rule.at_once, rule.batch)
    budget = share_of(run, _children(engine, run), len(lanes))
    runs = [
        NewRun(
            run_id=f"l-{engine.clock.new_id()}",
            pipeline=run.pipeline,
            plan=(place.step_type,),
            input=KeptValue(text="null"),
            input_digest=digest("null"),
            nonce=engine.clock.new_id(),
            labels=run.labels,
            max_retries=run.max_retries,
            budget=budget,
            traceparent=run.traceparent,
            priority=run.priority,
            parent=replace(link, name=f"lane {number}"),
            lane=replace(lane, ahead=flat(spans)),
            is_listed=False,
        )
        for number, spans in enumerate(lanes, start=1)
    ]
    return Begun("each", len(items), tuple(runs))


def _items(run: Manifest, text: str) -> list[Any]:
    items = pydantic_core.from_json(text)
    name = run.position.step
    if not isinstance(items, list):
        problem = "its input is not a list"
        raise ItemsRefusedError(step=name, problem=problem)
    if len(items) > MAX_ITEMS:
        problem = f"its input has {len(items)} items; at most {MAX_ITEMS} are allowed"
        raise ItemsRefusedError(step=name, problem=problem)
    return items


def _keep_given(engine: Engine, run: Manifest, items: Sequence[Any], batch: int) -> int:
    """Keep the items for the lanes; return how many one document has."""
    name = run.position.step
    given: list[GivenItem] = []
    largest = 1
    for number, item in enumerate(items):
        text = pydantic_core.to_json(item).decode()
        if (size := len(text.encode())) > MAX_INLINE_BYTES:
            artifact = f"{values_folder(run)}/{name}-item-{number:06d}.json"
            given.append(GivenItem(ref=put(engine.artifacts, text, artifact).ref))
        else:
            given.append(GivenItem(text=text))
            largest = max(largest, size)
    in_chunk = items_in_chunk(largest, batch)
    for chunk, start in enumerate(range(0, len(given), in_chunk)):
        document = StoredDocument(make(GivenItems, items=tuple(given[start : start + in_chunk])))
        ref = given_ref(run.run_id, run.life, name, chunk)
        engine.documents.transact(ref, partial(_put, document))
    return in_chunk


def _put(document: Document, _stored: Document | None, _now: Any) -> Write[None]:
    return Write(None, document)


def given_of_lane(engine: Engine, run: Manifest, lane: Lane) -> str:
    """Return what the attempt of a lane is given: an item, or a list of as many as a batch has.

    Raises:
        StoreUnavailableError, ArtifactNotFoundError: it could not be read.
    """
    first, end = lane.unit
    texts = [
        load(engine.artifacts, _given(engine, run, lane, number)) for number in range(first, end)
    ]
    return texts[0] if lane.batch == 1 else f"[{','.join(texts)}]"


def _given(engine: Engine, run: Manifest, lane: Lane, number: int) -> KeptValue:
    link = run.parent
    assert link is not None  # noqa: S101 - a lane has one
    chunk, at = divmod(number, lane.in_chunk)
    ref = given_ref(link.run_id, link.life, link.place, chunk)
    kept = engine.given_items
    if (known := kept.get(ref)) is None:
        found = engine.documents.get(ref)
        if found is None:
            raise ItemsRefusedError(step=link.place, problem=f"{ref} is missing")
        known = read_as(GivenItems, link.run_id, found.document)
        while len(kept) >= _MAX_CHUNKS_KEPT:
            kept.pop(next(iter(kept)), None)
        kept[ref] = known
    value: KeptValue = known.items[at].value
    return value


def checked_batch(lane: Lane, step: str, result: Result) -> Result:
    """Return the result of a lane's attempt; of a batch, as many outputs as it has items."""
    if lane.batch == 1 or not isinstance(result, Finished):
        return result
    first, end = lane.unit
    outputs = pydantic_core.from_json(result.output)
    if isinstance(outputs, list) and len(outputs) == end - first:
        return result
    what = counted(len(outputs), "output") if isinstance(outputs, list) else "no list"
    problem = f"its handler returned {what} for a batch of {end - first} items"
    return Failed(ErrorRecord.of(ItemsRefusedError(step=step, problem=problem)))


# What is done of the items: one document each.


def _finished(engine: Engine, run: Manifest) -> dict[int, ItemRecord]:
    """Return the records of items that are done: of this run, and of the one it was made of."""
    source = run.position.items_of
    done: dict[int, ItemRecord] = {}
    if source is not None:
        for record in _records(engine, source.run_id, source.life, source.place):
            if record.error is None:
                done[record.first] = record
                ref = item_ref(run.run_id, run.life, run.position.step, record.first)
                engine.documents.transact(ref, partial(_put, StoredDocument(record)))
    for record in _records(engine, run.run_id, run.life, run.position.step):
        if record.error is None:
            done[record.first] = record
    return done


def _records(engine: Engine, run_id: str, life: str, place: str) -> Iterator[ItemRecord]:
    query = Query(items_of(run_id), id_prefix=prefix_of_items(life, place), limit=SCAN_PAGE)
    return (read_as(ItemRecord, run_id, one.document) for one in scan(engine.documents, query))


def _missing(count: int, done: dict[int, ItemRecord]) -> list[Span]:
    """Return the items that have no record of an output."""
    spans: list[Span] = []
    at = 0
    for first in sorted(done):
        if at < first:
            spans.append((at, first))
        at = max(at, first + done[first].count)
    if at < count:
        spans.append((at, count))
    return list(joined(spans))


# The children of `Parallel` and `Child`.


def _others(engine: Engine, run: Manifest, place: Place, text: str) -> Result:
    known = {child.parent.name: child for child in _children(engine, run) if child.parent}
    done = {name for name, child in known.items() if child.status is RunStatus.COMPLETED}
    new = {name: what for name, what in _what(engine, run, place).items() if name not in done}
    budget = share_of(run, known.values(), len(new))
    runs = tuple(
        NewRun(
            run_id=f"{'r' if place.child else 'l'}-{engine.clock.new_id()}",
            input=run.given,
            input_digest=digest(text),
            nonce=engine.clock.new_id(),
            labels=run.labels,
            max_retries=run.max_retries,
            budget=budget,
            traceparent=run.traceparent,
            priority=run.priority,
            parent=_link(run, name),
            is_listed=bool(place.child),
            **what,
        )
        for name, what in new.items()
    )
    for child in runs:
        engine.rules.known_settings(step_type_at(child.places, child.plan[0]))
    return (
        Begun("child" if place.child else "parallel", 0, runs)
        if runs
        else _gathered(engine, run, place)
    )


def _what(engine: Engine, run: Manifest, place: Place) -> dict[str, dict[str, Any]]:
    """Return what each child of a place is a run of, by its name."""
    if not place.child:
        return {step: {"pipeline": run.pipeline, "plan": (step,)} for step in place.parallel or ()}
    pipeline = engine.catalog.pipeline(place.child)
    return {
        place.child: {
            "pipeline": pipeline.name,
            "plan": pipeline.plan,
            "places": pipeline.places,
            "trials": pipeline.trial_rule,
        }
    }


def _link(run: Manifest, name: str) -> ChildLink:
    dispatch = run.position.dispatch
    return ChildLink(
        run_id=run.run_id,
        life=run.life,
        place=run.position.step,
        name=name,
        generation=dispatch.generation,
        queue=dispatch.queue,
        deadline_s=dispatch.deadline_s,
        nonce=dispatch.nonce,
    )


def _children(engine: Engine, run: Manifest) -> Iterator[Manifest]:
    """Yield the children of the place at hand, the oldest of a name first."""
    found = (child for child in children_of(engine, run) if _is_of_place(child, run))
    return iter(sorted(found, key=lambda child: child.created_at))


def _is_of_place(child: Manifest, run: Manifest) -> bool:
    link = child.parent
    return link is not None and (link.life, link.place) == (run.life, run.position.step)


def children_of(engine: Engine, run: Manifest) -> Iterator[Manifest]:
    """Yield all children of a run that are there, of all of its places."""
    query = Query("runs", equal={"parentId": run.run_id}, limit=WHOLE_RUNS)
    for found in scan(engine.documents, query):
        child = manifest_of(found.ref.id, found.document)
        if child.parent is not None and child.parent.life == run.life and not child.purged_at:
            yield child


# The gathering: an attempt of the parent, once all of its children are through.


def _gathered(engine: Engine, run: Manifest, place: Place) -> Result:
    if place.each is not None:
        children = run.position.children
        count = 0 if children is None else children.items
        records = list(_records(engine, run.run_id, run.life, run.position.step))
        return _joined_items(engine, run, place.each, count, records)
    outputs: dict[str, str] = {}
    for child in _children(engine, run):
        output = child.steps[child.plan[-1]].kept_output
        if child.parent and child.status is RunStatus.COMPLETED and output is not None:
            outputs[child.parent.name] = load(engine.artifacts, output)
    wanted = [place.child] if place.child else list(place.parallel or ())
    if missing := [name for name in wanted if name not in outputs]:
        return Incomplete(f"There is no output of {_named(missing)}.", ITEMS_MISSING)
    if place.child:
        return _sized(run, outputs[place.child])
    fields = (f"{pydantic_core.to_json(name).decode()}:{outputs[name]}" for name in wanted)
    return _sized(run, f"{{{','.join(fields)}}}")


def _joined_items(
    engine: Engine,
    run: Manifest,
    rule: EachRule,
    count: int,
    records: list[ItemRecord],
) -> Result:
    """Return the outputs of all items in their order, or what is missing of them."""
    done = {one.first: one for one in records if one.error is None}
    failed = sorted((one for one in records if one.error is not None), key=lambda one: one.first)
    unknown = _missing(count, {one.first: one for one in records})
    failures = sum(one.count for one in failed)
    if unknown:
        named = [
            f"{start}" if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in unknown
        ]
        finding = f"Of {count} items of {run.position.step} there is nothing of {_named(named)}."
        return Incomplete(finding, ITEMS_MISSING)
    if failures > floor(rule.tolerate * count):
        reasons = [f"{one.first} ({one.error.code})" for one in failed if one.error]
        finding = (
            f"{failures} of {count} items of {run.position.step} failed, and at most "
            f"{floor(rule.tolerate * count)} may: {_named(reasons)}."
        )
        return Incomplete(finding, ITEMS_MISSING)
    texts = []
    for first in sorted(done):
        text = load(engine.artifacts, done[first].value)
        is_batch = rule.batch > 1 if done[first].is_batch is None else done[first].is_batch
        texts.append(text.strip()[1:-1] if is_batch else text)
    outputs = f"[{','.join(filter(None, texts))}]"
    if not rule.tolerate:
        return _sized(run, outputs)
    lost = [
        {"index": number, "code": one.error.code, "message": one.error.message}
        for one in failed
        if one.error is not None
        for number in range(one.first, one.first + one.count)
    ]
    told = pydantic_core.to_json(lost).decode()
    return _sized(run, f'{{"ok":{outputs},"failed":{told}}}', "PARTIAL" if lost else "SUCCESS")


def _sized(run: Manifest, output: str, status: str = "SUCCESS") -> Result:
    """Return the output of a place; one that is too large waits for code that makes less of it."""
    size = len(output.encode())
    if size <= MAX_OUTPUT_BYTES:
        return Finished(output, status)
    problem = f"all outputs together have {size} bytes; at most {MAX_OUTPUT_BYTES} are allowed"
    error = ItemsRefusedError(step=run.position.step, problem=problem)
    return Unable(BlockCode.INPUT_MISMATCH, ErrorRecord.of(error))


def _named(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    more = len(names) - _MAX_ITEMS_NAMED
    return ", ".join([*names[:_MAX_ITEMS_NAMED], *([f"{more} more"] if more > 0 else [])])


# The question whether the children of a run are through.

#: What is read of an open child.
_OPEN: Final = ("status", "paused", "block", "position.wait", "parent")


def ask(engine: Engine, run: Manifest) -> Committed[Change] | None:
    """Have a run go on whose children are through, or block where they all wait for a person.

    Returns:
        The change, with the lease for this worker where it goes on; None: some are at work.
    """
    open_children = [one for one in _open_children(engine, run) if _is_mine(one.document, run)]
    waiting = [one for one in open_children if waits_for_person(one.document)]
    if len(waiting) < len(open_children):
        return None
    rules, asked = engine.dispatch_rules(), run.position.children
    transition: Transition
    if waiting:
        over = (
            None
            if run.budget is None or run.paused
            else share_again(engine, run, _children(engine, run))
        )
        if over == "":
            return None
        transition = partial(
            lifecycle.block_at_children,
            rules=rules,
            asked=asked,
            finding=over or _waiting_words(waiting),
            code=BUDGET_EXCEEDED if over else CHILDREN_BLOCKED,
        )
    else:
        transition = lifecycle.then_arrive(
            partial(lifecycle.gather, rules=rules, asked=asked),
            rules=rules,
            lease_id=engine.clock.new_id(),
            holder=engine.process.holder,
        )
    return engine.commit(run.run_id, transition, in_transaction=True)


def _open_children(engine: Engine, run: Manifest) -> Iterator[Snapshot]:
    query = Query("runs", equal={"openOf": run.run_id}, limit=SCAN_PAGE, fields=_OPEN)
    return scan(engine.documents, query)


def open_children(engine: Engine, run: Manifest) -> list[str]:
    """Return the ids of the children of a run that have not ended."""
    return [one.ref.id for one in _open_children(engine, run) if _is_mine(one.document, run)]


def _is_mine(child: Document, run: Manifest) -> bool:
    link = child.get("parent")
    return isinstance(link, dict) and link.get("life") == run.life


def _waiting_words(waiting: Sequence[Snapshot]) -> str:
    """Say what the children wait for."""
    told = []
    for one in waiting:
        block = one.document.get("block") or {}
        why = "paused" if one.document.get("paused") else str(block.get("finding", "blocked"))
        told.append(f"{one.ref.id}: {why.rstrip('.')}")
    waits = "waits" if len(waiting) == 1 else "wait"
    return f"{counted(len(waiting), 'child', 'children')} {waits} for a person: {_named(told)}."
