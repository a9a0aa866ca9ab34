"""A checkpoint saver whose checkpoints are recorded in the step (`LeaseholdSaver`)."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

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
from leasehold.worker.context.step_context import StepContext

_LIST: Final = "leasehold-list"
_MARK: Final = 16

#: A change: the table, the key in it, and the new value.
_Change = tuple[str, Any, Any]
_Typed = tuple[str, bytes]


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
        await in_thread(self._record)
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
        """Save and record what a task has written, without blocking the loop."""
        self._put_writes(config, writes, task_id, task_path)
        await in_thread(self._record)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, and record that."""
        self._delete(thread_id)
        self._record()

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, and record that, without blocking the loop."""
        self._delete(thread_id)
        await in_thread(self._record)

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

    def _delete(self, thread_id: str) -> None:
        with self._changing:
            super().delete_thread(thread_id)
            self._changed("threads", thread_id, None)

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
                else:
                    super().delete_thread(key)


class _Parts(SerializerProtocol):
    """Serialises a list item by item, so that a longer one has its beginning in common with it.

    Args:
        serde: serialises everything else.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self._by_mark: dict[str, tuple[str, str, bytes]] = {}
        self._new: list[str] = []

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
            kind, data = self.serde.dumps_typed(item)
            before, words = mark, f"{mark}/{kind}/".encode()
            mark = hashlib.sha256(words + data).hexdigest()[: 2 * _MARK]
            if mark not in self._by_mark:
                self._by_mark[mark] = (before, kind, data)
                self._new.append(mark)
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


def _place(config: RunnableConfig) -> tuple[str, str, str]:
    place = config["configurable"]
    return place["thread_id"], place.get("checkpoint_ns", ""), place["checkpoint_id"]
