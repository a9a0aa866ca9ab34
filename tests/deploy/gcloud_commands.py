"""What the gcloud of this machine takes: its own table of commands and flags, read offline."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

_TABLE: Final = "data/cli/gcloud_completions.py"
_TREE: Final = "STATIC_COMPLETION_CLI_TREE"
_USUAL: Final = ("/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk")

#: Of `functions deploy`: a function has one trigger.
_TRIGGERS: Final = frozenset(
    {"--trigger-http", "--trigger-topic", "--trigger-bucket", "--trigger-event-filters"}
)


def need_gcloud() -> None:
    """Skip the test where there is no SDK, or fail it where one is required."""
    if _table_file() is None:
        text = "NO GOOGLE CLOUD SDK, so the flags of gcloud are not checked here"
        if os.environ.get("LEASEHOLD_REQUIRE_EMULATORS") == "1":
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


def problems_of(argv: Sequence[str]) -> Iterator[str]:
    """Yield what gcloud would refuse of a call, without its own name: one line each."""
    words, flags = _split(argv)
    command = " ".join(words)
    known, positional = _flags_of(words)
    if known is None:
        yield f"gcloud has no command {command!r}"
        return
    command = " ".join(words[: len(words) - positional])
    seen: set[str] = set()
    for name, value in flags:
        yield from _problems_of_flag(command, known, name, value)
        plain = name.replace("--no-", "--", 1) if name not in known else name
        if plain in seen:
            yield f"gcloud {command}: {plain} is given twice"
        seen.add(plain)
    if command.endswith("functions deploy") and len(_TRIGGERS & seen) != 1:
        yield f"gcloud {command}: it needs one trigger"


def _problems_of_flag(
    command: str, known: Mapping[str, Any], name: str, value: str | None
) -> Iterator[str]:
    takes = known.get(name)
    if takes is None and name.startswith("--no-"):
        takes = "bool" if known.get(name.replace("--no-", "--", 1)) == "bool" else None
    if takes is None:
        yield f"gcloud {command} has no flag {name}"
    elif takes == "bool":
        if value is not None:
            yield f"gcloud {command}: {name} takes no value"
    elif not value:
        yield f"gcloud {command}: {name} needs a value behind ="
    elif isinstance(takes, list) and value not in takes:
        yield f"gcloud {command}: {name} is {value!r}; allowed: {', '.join(takes)}"


def _split(argv: Sequence[str]) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Return the words and the flags; ours have their values behind an equals sign."""
    words, flags = [], []
    for word in argv:
        if word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            flags.append((name, value if equals else None))
        else:
            words.append(word)
    return words, flags


def _flags_of(words: Sequence[str]) -> tuple[dict[str, Any] | None, int]:
    """Return the flags of a command, and the number of its positional words."""
    node = _table()
    flags = dict(node["flags"])
    for count, word in enumerate(words):
        if word not in node["commands"]:
            is_command = not node["commands"]
            return (flags if is_command else None), len(words) - count
        node = node["commands"][word]
        flags |= node["flags"]
    return (flags if not node["commands"] else None), 0


@functools.cache
def _table() -> dict[str, Any]:
    file = _table_file()
    assert file is not None
    # Its one value is written as JSON has it: to read it as Python takes ten times as long.
    tree: dict[str, Any] = json.loads(file.read_text().partition(f"\n{_TREE} = ")[2])
    return tree


def _table_file() -> Path | None:
    gcloud = shutil.which("gcloud")
    roots = [*_USUAL, *([str(Path(gcloud).resolve().parent.parent)] if gcloud else [])]
    roots += filter(None, [os.environ.get("CLOUDSDK_ROOT_DIR")])
    found = [Path(root) / _TABLE for root in roots if (Path(root) / _TABLE).is_file()]
    return found[0] if found else None
