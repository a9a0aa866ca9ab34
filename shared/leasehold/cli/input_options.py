"""Options that are more than a word: the input of a run, and a label."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class GivenInput:
    """The input of a run, and the words that gave it."""

    words: str
    value: Any


class InputType(click.ParamType[GivenInput]):
    """JSON text, or the name of a file that holds it."""

    name = "JSON|@FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> GivenInput:
        """Return the value that the JSON text stands for."""
        if isinstance(value, GivenInput):
            return value
        allowed = "allowed: JSON text, @FILE, or @- for stdin."
        try:
            return GivenInput(value, json.loads(_text(value)))
        except OSError as error:
            self.fail(f"{value!r} cannot be read ({error.strerror}); {allowed}", param, ctx)
        except (ValueError, RecursionError) as error:
            self.fail(f"{value[:60]!r} is not JSON ({error}); {allowed}", param, ctx)


class LabelType(click.ParamType[tuple[str, str]]):
    """A label: key and value."""

    name = "KEY:VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return key and value."""
        if isinstance(value, tuple):
            return value[0], value[1]
        key, colon, rest = value.partition(":")
        if not colon:
            self.fail(f"{value!r} has no colon; allowed: key:value.", param, ctx)
        return key, rest


def as_mapping(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the labels by key; a key that is given twice is refused."""
    found: dict[str, str] = {}
    for key, value in labels:
        if key in found:
            raise click.UsageError(f"--label gives {key!r} twice; allowed: each key once.")
        found[key] = value
    return found


def _text(words: str) -> str:
    if words == "@-":
        return sys.stdin.buffer.read().decode("utf-8-sig")
    if words.startswith("@"):
        return Path(words[1:]).read_text(encoding="utf-8-sig")
    return words
