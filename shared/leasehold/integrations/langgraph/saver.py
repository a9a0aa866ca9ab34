"""A checkpoint saver whose checkpoints are recorded in the step (`LeaseholdSaver`)."""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from leasehold.bounded_calls import in_thread
from leasehold.errors import InvalidRequestError
from leasehold.worker.context.step_context import StepContext

_LIST: Final = "leasehold-list"
_MARK: Final = 16
#: The blob of a channel without a value.
_EMPTY: Final = ("empty", b"")
#: The metadata of a checkpoint that name its channels which are computed from earlier ones.
_DELTA_CHANNELS: Final = "counters_since_delta_snapshot"
#: How many turns of the loop LangGraph takes from the end of a step to its checkpoint.
_TURNS: Final = 3

#: A change: the table, the key in it, and the new value.
_Change = tuple[str, Any, Any]
_Typed = tuple[str, bytes]
#: Of a checkpoint: the thread, the namespace, its id.
_Place = tuple[str, str, str]


class LeaseholdSaver(InMemorySaver):
    """The checkpoints of LangGraph graphs that run in a step; an attempt that comes later has them.

        saver = LeaseholdSaver(ctx)
        graph = builder.compile(checkpointer=saver)
        await graph.ainvoke({"question": given.question}, saver.config(), durability="sync")

    A node that has ended is not run again after a kill, nor is an ended task of a batch; with the
    durability "async", LangGraph's own choice, those that ended just before it may be. An agent
    whose calls `LeaseholdMiddleware` records is best invoked with "exit": its checkpoint is then
    written once, at its end, and not beside each of them.

    The checkpoints are kept in memory. Each change of them is a recorded result (`ctx.once`) under
    the next number, and a later attempt reads these back in order; changes that come while one is
    being written are written together. A growing list, such as messages, is kept item by item, so
    that a conversation takes bytes in proportion to its length.

    Why a journal: LangGraph changes little at a time, and never what it has written; so does a
    journal of records of which each stands for good. The newest checkpoint alone, by
    `ctx.checkpoint` or as a file, would be written whole at each step, which is quadratic; it would
    not have what ended tasks of a batch have written, and there is one, which may be the handler's.
    A kill at any point loses only the changes that were not yet written. An attempt that has lost
    its lease may still write: where its record is the first under a number, this one's gets the
    next number. Both are read, and the newest checkpoint counts.

    Args:
        ctx: of the step.
        name: of the journal, where a step has several.
        serde: for the values of channels.
    """

    def __init__(
        self,
        ctx: StepContext,
        *,
        name: str = "langgraph",
        serde: SerializerProtocol | None = None,
    ) -> None:
        self._parts = _Parts(serde or JsonPlusSerializer())
        super().__init__(serde=self._parts)
        self._ctx = ctx
        self._name = name
        self._waiting: list[_Change] = []
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        self._failure: BaseException | None = None
        self._recording: asyncio.Future[None] | None = None
        self._count = 0
        self._read_back()

    def config(self, invocation: str = "main") -> RunnableConfig:
        """Return the config of an invocation of a graph: its thread is that of the run and step.

        An invocation that was interrupted goes on, also with its input given again; one that has
        ended returns what it returned.

        Args:
            invocation: its name, where the step has several on one thread, one after the other.
        """
        thread = f"{self._ctx.run_id}/{self._ctx.step}"
        # LangGraph goes on with an invocation of the same run_id, whatever the input.
        return {
            "configurable": {"thread_id": thread},
            "metadata": {"run_id": f"{thread}/{invocation}"},
        }

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint: the newest of the invocation if it has any, else of the thread."""
        if (run_id := config.get("metadata", {}).get("run_id")) and not get_checkpoint_id(config):
            place = config["configurable"]
            its_own: RunnableConfig = {
                "configurable": {
                    "thread_id": place["thread_id"],
                    "checkpoint_ns": place.get("checkpoint_ns", ""),
                }
            }
            newest = next(self.list(its_own, filter={"run_id": run_id}, limit=1), None)
            if newest is not None:
                return newest
        return super().get_tuple(config)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save and record a checkpoint."""
        saved = self._put(config, checkpoint, metadata, new_versions)
        self._record()
        return saved

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save and record a checkpoint, without blocking the loop."""
        saved = self._put(config, checkpoint, metadata, new_versions)
        await self._arecord()
        return saved

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save and record what a task has written."""
        self._put_writes(config, writes, task_id, task_path)
        self._record()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save and record what a task has written, without blocking the loop.

        Where the task was the last one of its step, the loop makes the next checkpoint within the
        same moment, and both are one record. Tasks beside it are not waited for.
        """
        self._put_writes(config, writes, task_id, task_path)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._waiting or self._writing.locked():
            await self._arecord()
        elif self._failure is not None:
            raise self._failure

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, and record that."""
        self._change("threads", [thread_id])
        self._record()

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, and record that, without blocking the loop."""
        self._change("threads", [thread_id])
        await self._arecord()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of invocations, by the `run_id` of their configs; record that."""
        self._change("checkpoints", self._of_runs(run_ids))
        self._record()

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do as `delete_for_runs`, without blocking the loop."""
        self._change("checkpoints", self._of_runs(run_ids))
        await self._arecord()

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one, and record that."""
        self._change("copies", [(source_thread_id, target_thread_id)])
        self._record()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do as `copy_thread`, without blocking the loop."""
        self._change("copies", [(source_thread_id, target_thread_id)])
        await self._arecord()

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads, and record that.

        Records stay until the step ends, so this takes nothing from what is stored.

        Args:
            thread_ids: the threads.
            strategy: "keep_latest": all but the newest of each namespace, and those that its
                channels of the kind `DeltaChannel` are computed from; "delete": all of them.
        """
        self._change(*self._pruned(thread_ids, strategy))
        self._record()

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do as `prune`, without blocking the loop."""
        self._change(*self._pruned(thread_ids, strategy))
        await self._arecord()

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with self._changing:
            saved = super().put(config, checkpoint, metadata, new_versions)
            thread, namespace, checkpoint_id = _place(saved)
            for channel, number in new_versions.items():
                key = (thread, namespace, channel, number)
                self._changed("blobs", key, self.blobs[key])
            row = self.storage[thread][namespace][checkpoint_id]
            self._changed("storage", (thread, namespace, checkpoint_id), row)
        return saved

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> None:
        with self._changing:
            place = _place(config)
            before = dict(self.writes.get(place, {}))
            super().put_writes(config, writes, task_id, path)
            for key, row in self.writes[place].items():
                if before.get(key) is not row:
                    self._changed("writes", (place, key), row)

    def _change(self, table: str, keys: Sequence[Any]) -> None:
        """Make changes that need no value, and note them."""
        with self._changing:
            for key in keys:
                self._apply_one(table, key, None)
                self._changed(table, key, None)

    def _of_runs(self, run_ids: Sequence[str]) -> list[_Place]:
        with self._changing:
            return [
                place
                for thread in list(self.storage)
                for place, (_, metadata, _) in self._checkpoints(thread)
                if self.serde.loads_typed(metadata).get("run_id") in run_ids
            ]

    def _pruned(self, thread_ids: Sequence[str], strategy: str) -> tuple[str, Sequence[Any]]:
        if strategy == "delete":
            return "threads", thread_ids
        if strategy != "keep_latest":
            raise InvalidRequestError(
                field="strategy", value=strategy, allowed="keep_latest or delete"
            )
        with self._changing:
            kept = {
                (thread, namespace, checkpoint_id)
                for thread in thread_ids
                for namespace in self.storage.get(thread, {})
                for checkpoint_id in self._newest(thread, namespace)
            }
            places = (place for thread in thread_ids for place, _ in self._checkpoints(thread))
            return "checkpoints", [place for place in places if place not in kept]

    def _newest(self, thread: str, namespace: str) -> Iterator[str]:
        """Yield the newest checkpoint, and those before it that its delta channels go back to."""
        checkpoints = self.storage[thread][namespace]
        checkpoint_id: str | None = max(checkpoints, default=None)
        missing: set[str] | None = None
        while checkpoint_id is not None and checkpoint_id in checkpoints and missing != set():
            yield checkpoint_id
            checkpoint, metadata, before = checkpoints[checkpoint_id]
            if missing is None:
                missing = set(self.serde.loads_typed(metadata).get(_DELTA_CHANNELS) or ())
            versions = self.serde.loads_typed(checkpoint)["channel_versions"]
            missing = {
                channel
                for channel in missing
                if self.blobs.get((thread, namespace, channel, versions.get(channel)), _EMPTY)
                == _EMPTY
            }
            checkpoint_id = before

    def _checkpoints(self, thread: str) -> Iterator[tuple[_Place, Any]]:
        for namespace, checkpoints in self.storage.get(thread, {}).items():
            for checkpoint_id, row in checkpoints.items():
                yield (thread, namespace, checkpoint_id), row

    def _changed(self, table: str, key: Any, value: Any) -> None:
        """Note a change that is to be recorded, after the parts that it is made of."""
        self._waiting += [("parts", each, self._parts[each]) for each in self._parts.taken_new()]
        self._waiting.append((table, key, value))

    def _record(self) -> None:
        """Record the changes that wait, unless another thread has; return when they are."""
        with self._writing:
            if self._failure is not None:
                raise self._failure
            with self._changing:
                changes, self._waiting = self._waiting, []
            if changes:
                try:
                    self._append(changes)
                except BaseException as error:
                    self._failure = error  # those whose changes these were must not go on
                    raise

    async def _arecord(self) -> None:
        """Do as `_record`, without blocking the loop; tasks that wait at once share a record."""
        if (recording := self._under_way()) is not None:
            await asyncio.shield(recording)  # it may have begun before the changes of this task
            if not self._waiting:
                return
            recording = self._under_way()
        if recording is None:
            recording = self._recording = asyncio.ensure_future(in_thread(self._record))
            recording.add_done_callback(_retrieve)
        await asyncio.shield(recording)

    def _under_way(self) -> asyncio.Future[None] | None:
        """Return the record that a task of this loop has begun; None: there is none."""
        recording = self._recording
        if recording is None or recording.get_loop() is not asyncio.get_running_loop():
            return None
        return None if recording.done() else recording

    def _append(self, changes: list[_Change]) -> None:
        kind, data = self._parts.serde.dumps_typed(changes)
        record = [kind, base64.b64encode(data).decode()]
        while True:
            first = self._next(record)
            if first == record:
                return
            self._apply(first)  # of an attempt whose lease ran out

    def _next(self, record: list[str] | None) -> list[str]:
        """Return the next record: the one that is there, else this; None: raise _EndError."""

        def journal() -> Any:
            if record is None:
                raise _EndError  # it is not recorded
            return record

        first: list[str] = self._ctx.once(f"{self._name}/{self._count}", journal)
        self._count += 1
        return first

    def _read_back(self) -> None:
        """Make all changes that earlier attempts have recorded."""
        try:
            while True:
                self._apply(self._next(None))
        except _EndError:
            return

    def _apply(self, record: list[str]) -> None:
        kind, text = record
        changes: Iterable[_Change] = self._parts.serde.loads_typed((kind, base64.b64decode(text)))
        with self._changing:
            for table, key, value in changes:
                self._apply_one(table, key, value)

    def _apply_one(self, table: str, key: Any, value: Any) -> None:
        if table == "parts":
            self._parts.put(key, value)
        elif table == "blobs":
            self.blobs[tuple(key)] = tuple(value)
        elif table == "storage":
            thread, namespace, checkpoint_id = key
            self.storage[thread][namespace][checkpoint_id] = tuple(value)
        elif table == "writes":
            place, task = key
            self.writes[tuple(place)][tuple(task)] = tuple(value)
        elif table == "checkpoints":
            thread, namespace, checkpoint_id = key
            self.storage[thread][namespace].pop(checkpoint_id, None)
            self.writes.pop(tuple(key), None)
        elif table == "copies":
            self._copy(*key)
        else:
            super().delete_thread(key)

    def _copy(self, source: str, target: str) -> None:
        for (_, namespace, checkpoint_id), row in list(self._checkpoints(source)):
            self.storage[target][namespace][checkpoint_id] = row
        for (thread, namespace, channel, version), blob in list(self.blobs.items()):
            if thread == source:
                self.blobs[target, namespace, channel, version] = blob
        for (thread, namespace, checkpoint_id), writes in list(self.writes.items()):
            if thread == source:
                self.writes[target, namespace, checkpoint_id] = dict(writes)


class _Message(NamedTuple):
    """A message that was serialised: most of a conversation is as it was a step before.

    Args:
        message: itself, or its identity would be given to another one.
        copy: as it was then: a node may have changed it since.
        before: the mark of the list before it.
        mark: of the list that ends with it.
    """

    message: BaseMessage
    copy: BaseMessage
    before: str
    mark: str

    @property
    def is_unchanged(self) -> bool:
        """Whether the message is as it was; all that its class compares is in these two."""
        now, then = self.message, self.copy
        if now.__dict__ != then.__dict__:
            return False
        return now.__pydantic_extra__ == then.__pydantic_extra__


class _Parts(SerializerProtocol):
    """Serialises a list item by item, so that a longer one has its beginning in common with it.

    Args:
        serde: serialises everything else.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self._by_mark: dict[str, tuple[str, str, bytes]] = {}
        self._new: list[str] = []
        self._messages: dict[int, _Message] = {}

    def __getitem__(self, mark: str) -> tuple[str, str, bytes]:
        """Return the last item of a list, and the mark of the list without it."""
        return self._by_mark[mark]

    def put(self, mark: str, part: Sequence[Any]) -> None:
        """Put a part that was recorded."""
        before, kind, data = part
        self._by_mark[mark] = (before, kind, data)

    def taken_new(self) -> list[str]:
        """Return the marks of the parts that are new, once."""
        new, self._new = self._new, []
        return new

    def dumps_typed(self, obj: Any) -> _Typed:
        """Return an object as bytes; of a list, the mark of its last part."""
        if type(obj) is not list:
            return self.serde.dumps_typed(obj)
        mark = ""
        for item in obj:
            known = self._messages.get(id(item))
            if known is not None and known.before == mark and known.is_unchanged:
                mark = known.mark
                continue
            kind, data = self.serde.dumps_typed(item)
            before, words = mark, f"{mark}/{kind}/".encode()
            mark = hashlib.sha256(words + data).hexdigest()[: 2 * _MARK]
            if mark not in self._by_mark:
                self._by_mark[mark] = (before, kind, data)
                self._new.append(mark)
            if isinstance(item, BaseMessage):
                self._messages[id(item)] = _Message(item, copy.deepcopy(item), before, mark)
        return _LIST, mark.encode()

    def loads_typed(self, data: _Typed) -> Any:
        """Return the object again."""
        if data[0] != _LIST:
            return self.serde.loads_typed(data)
        mark, items = data[1].decode(), []
        while mark:
            mark, kind, item = self._by_mark[mark]
            items.append(self.serde.loads_typed((kind, item)))
        return items[::-1]


class _EndError(Exception):
    """There are no more records."""


def _retrieve(recording: asyncio.Future[None]) -> None:
    """Take what a record raised: all that waited for it may be cancelled."""
    if not recording.cancelled():
        recording.exception()


def _place(config: RunnableConfig) -> _Place:
    place = config["configurable"]
    return place["thread_id"], place.get("checkpoint_ns", ""), place["checkpoint_id"]
