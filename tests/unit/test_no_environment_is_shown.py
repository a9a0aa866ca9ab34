"""An environment holds secrets; no object of ours prints one that it was made with."""

from __future__ import annotations

import importlib
import inspect
import os
import pydoc
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import leasehold
import pipelines.review
from leasehold.bootstrap import Hooks, boot
from leasehold.devserver.function_processes import Function, FunctionProcesses
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.server.server import ServeOptions, Server
from leasehold.testing import InProcessEngine
from leasehold.web.engine_provider import EngineProvider
from tests.worlds.builders import environ_of
from tests.worlds.own_process import own_process
from tests.worlds.ports import own_port

#: What needs an agent library, which is in its own environment alone.
_OF_LIBRARIES: Final = ("integrations/*/*", "library_agent.py")


def modules_of(package: ModuleType) -> Iterator[str]:
    """Yield the names of all modules of a package, but for those of agent libraries."""
    (folder,) = package.__path__
    for file in sorted(Path(folder).rglob("*.py")):
        within = file.relative_to(folder)
        parts = within.with_suffix("").parts
        is_module = all(part.isidentifier() for part in parts)  # and in no folder of templates
        if is_module and not any(map(within.match, _OF_LIBRARIES)):
            yield ".".join([package.__name__, *parts]).removesuffix(".__init__")


#: A bundle has the sources of its catalog, which are these tests: it does not stand here as it is.
PLANTED = f"planted-{0x9C1E:x}"

#: Programs, which run when they are imported.
PROGRAMS = {"leasehold.__main__", "leasehold.devserver.server_main"}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of this process, and one that is given to what is made: with a secret."""
    settings = environ_of(
        tmp_path, LEASEHOLD_CATALOG="tests.worlds.catalogs.sample", MODEL_API_KEY=PLANTED
    )
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture(autouse=True)
def _own_process() -> Iterator[None]:
    """Some modules and functions set variables."""
    with own_process():
        yield


def modules() -> Iterator[Any]:
    for package in (leasehold, pipelines.review):
        for name in modules_of(package):
            if name not in PROGRAMS:
                yield importlib.import_module(name)


def is_shown(value: Any) -> bool:
    return PLANTED in repr(value)


def is_in_help(value: Any) -> bool:
    return PLANTED in pydoc.render_doc(value)


def in_help_of(value: Any) -> Iterator[Any]:
    """Yield the values that the help of a class or a function prints, if it is one.

    They are the defaults of its parameters, and what a class keeps. The help itself has all that
    is inherited as well, in each class: it takes as long as hundreds of other tests.
    """
    if inspect.isfunction(value):
        yield from (value.__defaults__, value.__kwdefaults__)
    if inspect.isclass(value):
        for name, part in list(vars(value).items()):
            inner = getattr(part, "__func__", part)
            if inspect.isfunction(inner) or inspect.isclass(inner):
                yield from in_help_of(inner)
            elif not name.startswith("_"):
                yield part


def test_the_help_of_no_class_or_function_shows_it(environ: dict[str, str]) -> None:
    """A default that is the environment would stand in each signature."""
    shown = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
        and any(map(is_shown, in_help_of(value)))
    ]

    assert shown == []


def by_default(given: Any = os.environ) -> Any:
    return given


class OfMethod:
    def method(self, *, given: Any = os.environ) -> Any:
        return given


class OfClassMethod:
    @classmethod
    def method(cls, given: Any = os.environ) -> Any:
        return given


@pytest.mark.parametrize("value", [by_default, OfMethod, OfClassMethod])
def test_what_the_help_would_show_is_found(environ: dict[str, str], value: Any) -> None:
    assert is_in_help(value)
    assert any(map(is_shown, in_help_of(value)))


def made(environ: dict[str, str]) -> Iterator[Any]:
    """Yield what users and entry points make, of their own environment and of a given one."""
    for given in (None, environ):
        with InProcessEngine(environ=given, workers=1) as engine:
            yield engine
        bundle = boot(given)
        yield bundle
        bundle.close()
        server = Server(ServeOptions(port=own_port()), lambda _: None, given)
        yield server
        server.stop()
    provider = EngineProvider(environ)
    yield provider.engine and provider
    provider.close()
    yield Hooks()
    yield (options := DevOptions(port=own_port(), environ=environ))
    yield DevServer(options, lambda _: None)
    yield FunctionProcesses(Function("f", 1), Path(), environ, lambda _: None)


def parts_of(value: Any) -> Iterator[Any]:
    """Yield an object, its public attributes, and the fields of those that are values."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else vars(value)
    yield value
    for name in names:
        if not name.startswith("_"):
            part = getattr(value, name)
            yield part
            if is_dataclass(part) and not isinstance(part, type):
                yield from (getattr(part, field.name) for field in fields(part))


def test_nothing_that_is_made_shows_it(environ: dict[str, str]) -> None:
    shown = [
        f"{type(one).__name__}: {type(part).__name__}"
        for one in made(environ)
        for part in parts_of(one)
        if part is not environ and (is_shown(part) or (part is one and is_in_help(part)))
    ]

    assert shown == []
