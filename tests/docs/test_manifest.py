"""docs/manifest.md has each field of a manifest: the code sends a reader there for its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic.alias_generators import to_camel

from leasehold.domain.checkpoint import CallResult
from leasehold.domain.manifest import Manifest
from leasehold.domain.stored import Stored

PAGE = (Path(__file__).parents[2] / "docs/manifest.md").read_text()
#: It is stored as `createdAt`.
RENAMED = {"listedAt"}


def parts(kind: Any, seen: set[type[Stored]]) -> Iterator[type[Stored]]:
    """Yield each type of a value that is stored in this one, itself included."""
    if isinstance(kind, type) and issubclass(kind, Stored):
        if kind in seen or kind is CallResult:  # runs of an earlier version alone have them
            return
        seen.add(kind)
        yield kind
        for field in kind.model_fields.values():
            yield from parts(field.annotation, seen)
    for inner in get_args(kind):
        yield from parts(inner, seen)


def test_the_page_names_each_field_of_a_manifest_and_of_its_parts() -> None:
    fields = {to_camel(name) for part in parts(Manifest, set()) for name in part.model_fields}
    missing = {name for name in fields - RENAMED if not re.search(rf"`{name}`", PAGE)}

    assert len(fields) > 180
    assert sorted(missing) == []
