"""The reference of the public names: their signatures and docstrings, a page for each use."""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final, ForwardRef, NamedTuple, is_typeddict

from pydantic import BaseModel

import leasehold
from docs import outline
from leasehold import integrations, testing
from leasehold.domain.stored import Stored
from leasehold.hooks import is_hook

#: The public modules on each page, in the order that a reader needs them.
PAGES: Final[Mapping[str, Sequence[str]]] = {
    "reference": ("leasehold", "leasehold.in_process"),
    "reference-testing": ("leasehold.testing",),
    "reference-agents": tuple(
        f"{integrations.__name__}.{module.name}"
        for module in pkgutil.iter_modules(integrations.__path__)
        if module.ispkg
    ),
}

#: What a handler, a gate or a test is given.
_GIVEN: Final = (
    leasehold.GateContext,
    leasehold.StepContext,
    testing.Faults,
    testing.Recorded,
    testing.RemoteFiles,
    testing.RemoteStep,
)

#: The parts of a docstring that list something, and what a part begins with.
_PART: Final = re.compile(
    r"^((?:Args|Attributes|Raises|Returns|Yields|Source|Example)(?:, [a-z ]+)?):$"
)
_ITEM: Final = re.compile(r"^(?P<names>[\w*, ]+): (?P<text>.*)$")
_OPTIONS: Final = re.compile(r"Unpack\[(\w+)")
_RETURNED: Final = re.compile(r"(?:Async)?Iterator\[(.*)\]")
_WIDTH: Final = 100


class _Entry(NamedTuple):
    """A public name, as a section of a page.

    Args:
        module: the public module that has it.
        title: its heading; an integration's begins with that of its module.
        name: what users import.
        value: what it stands for.
        link: leads to the section from any page.
    """

    module: str
    title: str
    name: str
    value: Any
    link: str


def page(name: str) -> str:
    """Return the modules of a page: of each the public names in alphabetical order."""
    return "\n".join(line for module in PAGES[name] for line in _module(module))


@cache
def entries() -> tuple[_Entry, ...]:
    """Return each public name of each public module; and options that methods take as keywords."""
    return tuple(_entries())


def _entries() -> Iterator[_Entry]:
    seen = set[int]()
    for name, modules in PAGES.items():
        for module in modules:
            public = dict(_names_of(module))
            options = {
                kind.__name__: kind
                for value in public.values()
                for _, method in _methods(module, value, ())
                for kind in _options(method)
                if id(kind) not in seen
            }
            seen.update(map(id, options.values()))
            prefix = f"{module.rpartition('.')[2]}." if _is_integration(module) else ""
            for own, value in sorted((public | options).items(), key=lambda it: it[0].lower()):
                title = f"{prefix}{own}"
                anchor = re.sub(r"[^\w-]", "", title).lower()
                link = f"[`{module}.{own}`]({name}.md#{anchor})"
                yield _Entry(module, title, own, value, link)


def _is_integration(module: str) -> bool:
    return module.startswith(f"{integrations.__name__}.")


def _names_of(module: str) -> Iterator[tuple[str, Any]]:
    if _is_integration(module):
        return outline.names_of(module)
    found = import_module(module)
    return ((name, getattr(found, name)) for name in found.__all__)


def _module(module: str) -> Iterator[str]:
    yield f"## {module}\n"
    is_read = _is_integration(module)
    documented = outline.docstring_of(module) if is_read else inspect.getdoc(import_module(module))
    yield from _text(documented or "")
    for entry in entries():
        if entry.module == module:
            yield from _entry(entry)


def _entry(entry: _Entry) -> Iterator[str]:
    yield f"### {entry.title}\n"
    first = next(it for it in entries() if it.value is entry.value)
    if first is not entry:
        yield f"The same as {first.link}.\n"
        return
    yield from _described(entry.name, entry.value)
    bases = [it for it in entries() if _is_base(it, entry)]
    for base in bases[:1]:
        yield f"It also has the methods and attributes of {base.link}.\n"
    for method, function in _methods(entry.module, entry.value, [it.value for it in bases]):
        yield f"#### {entry.title}.{method}\n"
        yield from _described(f"{entry.name}.{method}", function)


def _is_base(one: _Entry, of: _Entry) -> bool:
    is_other = inspect.isclass(of.value) and one.value is not of.value
    return is_other and one.value in of.value.__mro__ and _is_called(one.value)


def _is_called(value: Any) -> bool:
    """Return whether users call methods of a class: those of a value or an entry are ours."""
    if not inspect.isclass(value) or value is leasehold.AsyncClient:  # it has those of `Client`
        return False
    is_value = is_dataclass(value) or issubclass(value, (BaseModel, Stored, BaseException, tuple))
    return value in _GIVEN or not is_value


def _methods(module: str, value: Any, bases: Iterable[type]) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that users call.

    Those of bases in this package are among them, unless a base has its own section. The
    methods of an integration are called by its library, but for those that its docstring names.
    """
    if not _is_called(value):
        return
    seen = set[str]()
    elsewhere = {kind for base in bases for kind in base.__mro__}
    for kind in value.__mro__:
        if kind in elsewhere or not kind.__module__.startswith("leasehold."):
            continue
        for name, member in vars(kind).items():
            if name.startswith("_") or name in seen or not _is_documented(member):
                continue
            if _is_integration(module) and f".{name}(" not in str(value.__doc__):
                continue
            seen.add(name)
            if not is_hook(_function(member)):
                yield name, member


def _options(method: Any) -> Iterator[type]:
    """Yield the dictionary of options that a method takes as keywords."""
    function = inspect.unwrap(_function(method))
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_KEYWORD and (found := _OPTIONS.match(_words(one.annotation))):
            yield outline.resolved(function.__module__, found[1])


def _function(member: Any) -> Any:
    """Return the function of a method or a property."""
    return getattr(member, "fget", None) or getattr(member, "__func__", member)


def _is_documented(member: Any) -> bool:
    is_function = inspect.isfunction(member) or isinstance(member, (property, classmethod))
    return is_function and bool(inspect.getdoc(member))


def _described(title: str, value: Any) -> Iterator[str]:
    if (signature := _signature(title, value)) is not None:
        yield f"```python\n{signature}\n```\n"
    yield from _text(inspect.getdoc(value) or "")


def _signature(title: str, value: Any) -> str | None:
    """Return how it is called; None: it is read, and made by the engine alone."""
    if inspect.isclass(value) and not _is_made_by_users(value):
        return None
    if is_typeddict(value):
        fields = (f"    {name}: {_words(kind)}" for name, kind in value.__annotations__.items())
        return "\n".join([f"class {title}(TypedDict, total=False):", *fields])
    if isinstance(value, property):
        return f"{title}: {_annotation(value.fget)}"
    function = value.__func__ if isinstance(value, classmethod) else value
    try:
        signature = inspect.signature(function)
    except ValueError:  # an error that takes whatever Python's own takes
        return None
    shown = list(_parameters(signature))
    line = f"{title}({', '.join(shown)})"
    is_block = not inspect.isclass(value) and _is_block(function)
    returned = "" if inspect.isclass(value) else _words(signature.return_annotation)
    if is_block:
        returned = _RETURNED.sub(r"\1", returned)
    returned = returned and f" -> {returned}"
    if len(line + returned) > _WIDTH:
        inner = "".join(f"    {one},\n" for one in shown)
        line = f"{title}(\n{inner})"
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
        inspect.unwrap(function)
    )
    before = ("async " if is_async else "") + "with " if is_block else "await " if is_async else ""
    return before + line + returned


def _is_made_by_users(kind: type) -> bool:
    """Return whether users make objects of a class, and its source says how."""
    defined = {name for one in kind.__mro__[:-1] for name in vars(one)}
    is_read = issubclass(kind, (*_GIVEN, BaseModel, Stored))
    return not is_read and not defined.isdisjoint({"__init__", "__new__"})


def _is_block(function: Any) -> bool:
    """Return whether a function is called in a `with`."""
    return inspect.getfile(function) == contextlib.__file__


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Yield each parameter as it is written in a definition; `*` before those that are named."""
    is_named = is_ordered = False
    for name, one in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if is_ordered and one.kind is not one.POSITIONAL_ONLY:
            yield "/"
        is_ordered = one.kind is one.POSITIONAL_ONLY
        if one.kind is one.KEYWORD_ONLY and not is_named:
            is_named = True
            yield "*"
        is_named = is_named or one.kind is one.VAR_POSITIONAL
        stars = (
            "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        )
        kind = "" if one.annotation is one.empty else f": {_words(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        yield f"{stars}{name}{kind}{default}"
    if is_ordered:
        yield "/"


def _default(value: Any) -> str:
    """Return a default as it is written; one that stands for "not given" has no words."""
    if type(value) is object:
        return "..."
    if inspect.isfunction(value):
        return value.__name__
    shown = repr(value.value if isinstance(value, Enum) else value)
    return re.sub(r"\bdatetime\.(?=[a-z])", "", shown)


def _annotation(function: Callable[..., Any] | None) -> str:
    return _words(inspect.signature(function).return_annotation) if function else "Any"


def _words(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _text(documented: str) -> Iterator[str]:
    """Yield a docstring as Markdown: its paragraphs, and a list for each part that lists."""
    part, lines = "", list[str]()
    for line in [*documented.split("\n"), "End:"]:
        if _PART.match(line) or line == "End:":
            yield from _listed(lines) if part else _paragraphs(lines)
            part, lines = line.rstrip(":"), []
            if line != "End:":
                yield f"**{part}**\n"
        else:
            lines.append(line)


def _paragraphs(lines: list[str]) -> Iterator[str]:
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        if paragraph:
            yield paragraph + "\n"


def _listed(lines: list[str]) -> Iterator[str]:
    """Yield a list: an item begins where a line is not indented further."""
    items = list[str]()
    for line in textwrap.dedent("\n".join(lines)).split("\n"):
        if items and (line.startswith(" ") or items[-1].endswith(",")):
            items[-1] += f" {line.strip()}"
        elif line:
            items.append(line)
    for item in items:
        found = _ITEM.match(item)
        yield f"- `{found['names']}`: {found['text']}" if found else f"- {item}"
    yield ""
