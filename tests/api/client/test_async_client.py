"""The client for asyncio: the same calls, awaited, and any number of waits at once."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

from leasehold import AsyncClient, Client, Manifest
from leasehold.errors import (
    ArtifactNameError,
    IdempotencyKeyReusedError,
    NotAllowedError,
    UnknownRunError,
)
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs.client import Answer, Question
from tests.worlds.waiting import until

#: More than the client has threads, by far.
MANY = 40


def test_it_has_each_method_of_its_twin() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if name[0] != "_"}

    assert methods(AsyncClient) == methods(Client)
    for name in methods(Client) - {"close", "runs", "wait", "result", "run"}:
        assert inspect.getdoc(getattr(AsyncClient, name)) == inspect.getdoc(getattr(Client, name))


def test_a_run_is_started_waited_for_and_read_as_its_model(working_url: str) -> None:
    async def story() -> None:
        told: list[Manifest] = []
        async with AsyncClient(working_url, actor="ada") as client:
            run = await client.start("answers", Question(text="why me?"), labels={"team": "a"})
            ended = await client.wait(run, 30, on_change=told.append)

            assert await client.result(run, Answer) == Answer(text="WHY ME?", words=2)
            assert await client.run("answers", Question(text="why?"), timeout=30) == {
                "text": "WHY?",
                "words": 1,
            }
            assert [found.run_id async for found in client.runs(label="team:a")] == [run.run_id]
            assert told[-1] == ended
            with pytest.raises(NotAllowedError):
                await client.pause(run, reason="late")
            with pytest.raises(UnknownRunError):
                await client.get("r-none")
            with pytest.raises(UnknownRunError):
                await client.wait("r-none")

    asyncio.run(story())


def test_a_run_is_started_with_files(url: str, tmp_path: Path) -> None:
    """Those that are paths are read by a thread of the client's, and kept before the answer."""
    (tmp_path / "two.txt").write_bytes(b"two")
    files: dict[str, bytes | Path] = {"a/one.txt": b"one", "two.txt": tmp_path / "two.txt"}
    question = Question(text="why?")

    async def story() -> None:
        async with AsyncClient(url) as client:
            run = await client.start("answers", question, idempotency_key="k", files=files)
            same = await client.start("answers", question, idempotency_key="k", files=files)

            assert same.run_id == run.run_id
            assert [file.name for file in (await client.get(run)).input_files] == [*files]
            assert await client.file(run, "a/one.txt") == b"one"
            assert await client.file(run, "two.txt") == b"two"
            with pytest.raises(IdempotencyKeyReusedError):
                await client.start("answers", question, idempotency_key="k", files={"a": b""})
            with pytest.raises(ArtifactNameError):
                await client.start("answers", question, files={"../a": b""})

    asyncio.run(story())


def test_many_tasks_wait_at_once_and_leave_room_for_others(
    url: str, engine: InProcessEngine
) -> None:
    """Nothing runs until all of them wait; other calls, and other threads, get through."""

    async def story() -> list[Any]:
        async with AsyncClient(url) as client:
            runs = [await client.start("answers", {"theText": str(n)}) for n in range(MANY)]
            waiting: set[str] = set()
            all_wait = asyncio.Event()

            def told(run: Manifest) -> None:
                waiting.add(run.run_id)
                if len(waiting) == MANY:
                    all_wait.set()

            async def ended(run_id: str) -> Any:
                return await client.result(await client.wait(run_id, 120, on_change=told))

            tasks = [asyncio.create_task(ended(run.run_id)) for run in runs]
            await all_wait.wait()
            assert (await client.get(runs[0])).status == "PENDING"
            assert await asyncio.to_thread(engine.adopt_all) == MANY
            return await asyncio.gather(*tasks)

    assert [done["text"] for done in asyncio.run(story())] == [str(n) for n in range(MANY)]


def test_a_wait_that_is_cancelled_or_over_leaves_the_run_as_it_is(url: str) -> None:
    async def story() -> None:
        async with AsyncClient(url) as client:
            run = await client.start("answers", {"theText": "why?"})
            looked = asyncio.Event()
            task = asyncio.create_task(client.wait(run, on_change=lambda _: looked.set()))
            await looked.wait()

            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError, match="still moves, PENDING"):
                await client.wait(run, 0.1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1) as cut_off:
                    await client.wait(run)
            assert cut_off.expired(), "it ended by itself"

            assert (await client.get(run)).status == "PENDING"

    asyncio.run(story())


def test_it_closes_its_store_and_its_threads(environ: dict[str, str]) -> None:
    def mine() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if "leasehold-client" in thread.name]

    async def story() -> None:
        async with AsyncClient(environ=environ) as client:
            run = await client.start("answers", {"theText": "why?"})
            assert (await client.cancel(run)).cancelled
            assert mine()

    asyncio.run(story())
    assert until(lambda: not mine())
