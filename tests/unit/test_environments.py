"""What a process was started with is shown by no signature and no repr: it holds its secrets."""

from __future__ import annotations

import importlib
import inspect
import os
import pydoc
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
import pipelines.review
from leasehold.devserver.function_processes import Function, FunctionProcesses
from leasehold.devserver.server import DevOptions
from leasehold.testing import InProcessEngine
from tests.worlds.modules import modules_of
from tests.worlds.own_process import own_process

FOUND_IN_IT = "a-value-of-the-environment"


def modules() -> Iterator[str]:
    for package in (leasehold, pipelines.review):
        yield from (name for name in modules_of(package) if not name.endswith("__main__"))


def callables(name: str) -> Iterator[object]:
    with own_process():  # some modules set variables
        module = importlib.import_module(name)
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) == name:
            yield thing
            if inspect.isclass(thing):
                yield from (it for it in vars(thing).values() if inspect.isfunction(it))


@pytest.mark.parametrize("name", [*modules()])
def test_no_signature_holds_the_environment(name: str) -> None:
    for thing in callables(name):
        try:
            parameters = inspect.signature(thing).parameters.values()  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        assert all(parameter.default is not os.environ for parameter in parameters), thing


def test_help_and_repr_show_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", FOUND_IN_IT)
    processes = FunctionProcesses(Function("f", 1), Path(), dict(os.environ), print)

    assert FOUND_IN_IT not in pydoc.render_doc(InProcessEngine)
    assert FOUND_IN_IT not in repr(processes)
    assert FOUND_IN_IT not in repr(DevOptions())
