"""The words of a command for a filter of runs, for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from leasehold.domain.timestamps import moment_text

#: Options that are not called as the field of the filter.
_OPTIONS: Final = {"reason": "--dead-letter-reason"}


def filter_words(fields: Mapping[str, Any]) -> list[str]:
    """Return the options that give a filter of runs again.

    Args:
        fields: of the filter, by the names that `RunFilter` has.
    """
    return list(_words(fields))


def _words(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            yield option
        elif value:  # there is no option for a flag that is false
            for one in value if isinstance(value, tuple) else (value,):
                yield from (option, moment_text(one) if isinstance(one, datetime) else str(one))
