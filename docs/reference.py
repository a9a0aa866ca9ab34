"""The reference of the public names of the package: their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import BaseModel

import leasehold
from leasehold.domain.stored import Stored

#: Whose methods users call. The methods of an entry or a value are the engine's.
_CALLED: Final = {
    leasehold.Client,
    leasehold.GateContext,
    leasehold.Registry,
    leasehold.ShutdownCoordinator,
    leasehold.StepContext,
}
#: What a handler or a gate is given.
_GIVEN: Final = {leasehold.GateContext, leasehold.StepContext}

#: The parts of a docstring that list something, and what a part begins with.
_PART: Final = re.compile(
    r"^((?:Args|Attributes|Raises|Returns|Yields|Source|Example)(?:, [a-z ]+)?):$"
)
_ITEM: Final = re.compile(r"^(?P<names>[\w*, ]+): (?P<text>.*)$")
_WIDTH: Final = 100


def reference() -> str:
    """Return all public names in alphabetical order, a class with its methods."""
    return "\n".join(line for name in leasehold.__all__ for line in _entry(name))


def _entry(name: str) -> Iterator[str]:
    value = getattr(leasehold, name)
    yield f"## {name}\n"
    yield from _described(name, value)
    for method, function in _methods(value):
        yield f"### {name}.{method}\n"
        yield from _described(f"{name}.{method}", function)


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that users call, those of its bases of this package too."""
    if value not in _CALLED:
        return
    seen = set[str]()
    for kind in value.__mro__:
        if not kind.__module__.startswith("leasehold."):
            continue
        for name, member in vars(kind).items():
            if name.startswith("_") or name in seen or not _is_documented(member):
                continue
            seen.add(name)
            yield name, member


def _is_documented(member: Any) -> bool:
    is_function = inspect.isfunction(member) or isinstance(member, (property, classmethod))
    return is_function and bool(inspect.getdoc(member))


def _described(title: str, value: Any) -> Iterator[str]:
    if (signature := _signature(title, value)) is not None:
        yield f"```python\n{signature}\n```\n"
    yield from _text(inspect.getdoc(value) or "")


def _signature(title: str, value: Any) -> str | None:
    """Return how it is called; None: it is read, and made by the engine alone."""
    if inspect.isclass(value) and (value in _GIVEN or issubclass(value, BaseModel | Stored)):
        return None
    if isinstance(value, property):
        return f"{title}: {_annotation(value.fget)}"
    function = value.__func__ if isinstance(value, classmethod) else value
    try:
        signature = inspect.signature(function)
    except ValueError:  # an error that takes whatever Python's own takes
        return None
    shown = list(_parameters(signature))
    line = f"{title}({', '.join(shown)})"
    returned = "" if inspect.isclass(value) else f" -> {_words(signature.return_annotation)}"
    if len(line + returned) > _WIDTH:
        inner = "".join(f"    {one},\n" for one in shown)
        line = f"{title}(\n{inner})"
    is_async = inspect.iscoroutinefunction(function)
    return ("await " if is_async else "") + line + returned


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Yield each parameter as it is written in a definition; `*` before those that are named."""
    is_named = False
    for name, one in signature.parameters.items():
        if name in ("self", "cls"):
            continue
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


def _default(value: Any) -> str:
    """Return a default as it is written; one that stands for "not given" has no words."""
    return (
        "..." if type(value) is object else repr(value).replace("datetime.timedelta", "timedelta")
    )


def _annotation(function: Callable[..., Any] | None) -> str:
    return _words(inspect.signature(function).return_annotation) if function else "Any"


def _words(annotation: Any) -> str:
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
