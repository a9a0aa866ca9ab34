"""Templates, and the words of times, texts and commands in them."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from leasehold.domain.json_text import digest
from leasehold.domain.printable import counted, one_line, printable
from leasehold.presentation.formatting import ago, duration, stamp
from leasehold.presentation.run_state import overlay_of, state_of, status_icon

_FOLDER: Final = Path(__file__).parent
#: A value is shown up to here; the whole of it is behind a link.
MAX_VALUE_SHOWN_CHARS: Final = 4000
_MAX_LINE_CHARS: Final = 300
#: A list of 50 runs, a style sheet and a script travel in 40 KB.
STATIC_TYPES: Final[Mapping[str, str]] = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return _environment().get_template(template).render(values)


@functools.cache
def static_file(name: str) -> tuple[bytes, str]:
    """Return a file of the pages, and the mark of its content; KeyError: there is none."""
    if name not in STATIC_TYPES:
        raise KeyError(name)
    content = (_FOLDER / "static" / name).read_bytes()
    return content, digest(content.decode())[:12]


@functools.cache
def version_mark() -> str:
    """Return what tells the pages of this version from those of another."""
    try:
        installed = version("leasehold")
    except PackageNotFoundError:
        installed = ""
    return digest("".join([installed, *_templates().values()]))[:12]


@functools.cache
def _templates() -> Mapping[str, str]:
    """Return all templates by their names, read at once.

    Those of another version may take their place while the process runs, and ask for other values.
    """
    files = sorted((_FOLDER / "templates").iterdir())
    return {one.name: one.read_text() for one in files}


@functools.cache
def _environment() -> Environment:
    """Return the templates: every text that a template shows is escaped, and none is left out."""
    environment = Environment(
        loader=DictLoader(_templates()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        line=_line,
        text=_text,
        short=_short,
        duration=_duration,
        stamp=stamp,
        share=_share,
        pretty=_pretty,
        path=_path,
    )
    environment.globals.update(
        when=_when,
        command=_command,
        curl=_curl,
        query=query_of,
        static=_static,
        counted=counted,
        overlay_of=overlay_of,
        state_of=state_of,
        status_icon=status_icon,
    )
    return environment


def _line(value: object, most: int = _MAX_LINE_CHARS) -> str:
    """Return a text of strangers in one line."""
    return one_line(str(value), most)


def _text(value: object) -> str:
    """Return a text of strangers with its lines."""
    return "\n".join(printable(line) for line in str(value).split("\n"))


def _short(value: object, most: int = MAX_VALUE_SHOWN_CHARS) -> str:
    """Return the begin of a long text."""
    text = _text(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _duration(seconds: float | timedelta | None) -> str:
    if seconds is None:
        return ""
    span = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    is_short = timedelta(0) < span < timedelta(seconds=1)
    return f"{span / timedelta(milliseconds=1):.0f} ms" if is_short else duration(span)


def _share(value: float) -> str:
    return f"{value:.0%}"


def _pretty(value: Any) -> str:
    """Return a value as JSON that people read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _path(part: object) -> str:
    """Return a part of a path, escaped."""
    return quote(str(part), safe="")


def _when(at: datetime | None, now: datetime) -> Markup:
    """Return a time as it is said, with the whole of it for who points at it."""
    if at is None:
        return Markup()
    words = "just now" if at == now else ago(at, now)
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(stamp(at), words)


def _command(*words: object) -> str:
    """Return a command of the command line."""
    return shlex.join(["leasehold", *(str(word) for word in words if word is not None)])


def _curl(url: str) -> str:
    """Return the command that a program reads a page's JSON with."""
    return shlex.join(["curl", url])


def query_of(values: Mapping[str, Any], **changed: Any) -> str:
    """Return a query of an address with some values changed; None and empty ones left out."""
    wanted = {
        name: value for name, value in {**values, **changed}.items() if value not in (None, "")
    }
    return f"?{urlencode(wanted, doseq=True)}" if wanted else "?"


def _static(name: str) -> str:
    """Return the address of a file of the pages, which changes with its content."""
    return f"/assets/{name}?v={static_file(name)[1]}"
