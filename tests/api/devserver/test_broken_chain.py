"""A bundle whose pipeline could never reach its end is refused before anything is started."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.errors import ChainError, PlatformLimitError
from tests.worlds.bundles import settings
from tests.worlds.ports import own_port


class Size(BaseModel):
    size: int


class Name(BaseModel):
    name: str


def measure(ctx: StepContext, given: Name) -> Size:
    return Size(size=len(given.name))


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler="tests.api.devserver.test_broken_chain:measure",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry("dispatch", [_entry("measure"), _entry("again")])
PIPELINES = Registry("pipelines", [PipelineEntry(name="twice", steps=("measure", "again"))])


def test_the_dev_server_refuses_it_with_both_names(tmp_path: Path) -> None:
    catalog = {"LEASEHOLD_CATALOG": "tests.api.devserver.test_broken_chain"}
    options = DevOptions(port=own_port(), data=tmp_path, environ=settings(tmp_path) | catalog)

    with pytest.raises(ChainError, match="gives Size, and step 'again' takes Name"):
        DevServer(options, print)


def test_the_dev_server_plays_the_platform_with_its_limit(tmp_path: Path) -> None:
    catalog = {"LEASEHOLD_CATALOG": "tests.worlds.catalogs.long_steps"}
    options = DevOptions(port=own_port(), data=tmp_path, environ=settings(tmp_path) | catalog)

    with pytest.raises(PlatformLimitError, match=r"crawl \(2:00:00\)"):
        DevServer(options, print)
