"""Cloud Logging's filter language, as much of it as our filters use, applied to an entry.

https://cloud.google.com/logging/docs/view/logging-query-language: comparisons `=` and `>` with a
text, a number or a boolean, `=` with a list of texts, AND, OR and parentheses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(AND|OR)\b|([()=>])|([\w.]+))')


def matches(text: str, entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of the log is one that a filter finds."""
    return _Filter(text).value(entry)


class _Filter:
    """A filter that is read from left to right; what it does not know, it refuses."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            assert found is not None, f"not understood: {text[at:]!r}"
            self._tokens.append(found[0].strip())
            at = found.end()

    def value(self, entry: Mapping[str, Any]) -> bool:
        value = self._any(entry)
        assert not self._tokens, f"not understood: {self._tokens}"
        return value

    def _any(self, entry: Mapping[str, Any]) -> bool:
        value = self._all(entry)
        while self._skip("OR"):
            value = self._all(entry) or value
        return value

    def _all(self, entry: Mapping[str, Any]) -> bool:
        value = self._one(entry)
        while self._skip("AND"):
            value = self._one(entry) and value
        return value

    def _one(self, entry: Mapping[str, Any]) -> bool:
        if self._skip("("):
            value = self._any(entry)
            assert self._skip(")")
            return value
        found = _at(entry, self._tokens.pop(0))
        operator = self._tokens.pop(0)
        if operator == ">":
            bound = json.loads(self._tokens.pop(0))
            return isinstance(found, int | float) and found > bound
        assert operator == "="
        return found in self._values()

    def _values(self) -> list[Any]:
        if not self._skip("("):
            return [json.loads(self._tokens.pop(0))]
        values = [json.loads(self._tokens.pop(0))]
        while self._skip("OR"):
            values.append(json.loads(self._tokens.pop(0)))
        assert self._skip(")")
        return values

    def _skip(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        self._tokens.pop(0)
        return True


def _at(entry: Mapping[str, Any], path: str) -> Any:
    """Return the field of a path; None where there is none."""
    found: Any = entry
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
