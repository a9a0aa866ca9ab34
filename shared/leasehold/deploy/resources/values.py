"""Values of Google's APIs in words, and how they differ from what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from leasehold.deploy.resources.resource import Difference


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Difference]:
    """Yield each value that is not as it is wanted, in the order of what is wanted."""
    for field, value in wanted.items():
        if found.get(field, "") != value:
            yield Difference(field, found.get(field, "") or "none", value)


def seconds(span: timedelta | None) -> str:
    """Return a span as gcloud takes it: `10s`, `0.1s`; empty: there is none."""
    return "" if span is None else f"{span.total_seconds():.3f}".rstrip("0").rstrip(".") + "s"
