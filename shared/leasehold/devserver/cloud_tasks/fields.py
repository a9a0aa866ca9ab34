"""Reading the JSON of a request field by field, strictly."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from leasehold.devserver.cloud_tasks.refusals import RefusedError, invalid

_DURATION: Final = re.compile(r"-?\d{1,9}(\.\d{1,9})?s", re.ASCII)


class Fields:
    """A JSON object of a request.

    Args:
        value: what stands there.
        path: where, for the refusals.
    """

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise invalid(f"Invalid value at '{path}': a JSON object is needed.")
        self._left = dict(value)
        self._path = path

    def end(self, *ignored: str) -> None:
        """Refuse the fields that nobody asked for; those that the service fills are ignored."""
        for name in self._left:
            if name not in ignored:
                raise invalid(
                    f'Invalid JSON payload received. Unknown name "{name}" at '
                    f"'{self._path}': Cannot find field."
                )

    def bad(self, name: str, value: Any, needed: str) -> RefusedError:
        """Return the refusal of a value."""
        return invalid(f"Invalid value at '{self._path}.{name}' ({needed}), {value!r}")

    def object(self, name: str) -> Fields | None:
        """Return an object."""
        value = self._left.pop(name, None)
        return None if value is None else Fields(value, f"{self._path}.{name}")

    def text(self, name: str) -> str:
        """Return a text; empty when it is missing."""
        value = self._left.pop(name, "")
        if not isinstance(value, str):
            raise self.bad(name, value, "TYPE_STRING")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Return a map of texts; empty when it is missing."""
        value = self._left.pop(name, {})
        texts = isinstance(value, dict) and all(isinstance(it, str) for it in value.values())
        if not texts:
            raise self.bad(name, value, "a map of strings")
        return dict(value)

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """Return a number; integers may come as texts, as JSON has them of 64 bits."""
        value = self._left.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(name, value, "a number")
        if not low <= value <= high:
            raise self.bad(name, value, f"{low} to {high}")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number."""
        value = self.number(name, default, low, high)
        if value != int(value):
            raise self.bad(name, value, "TYPE_INT32")
        return int(value)

    def enum(self, name: str, names: Mapping[int, str], default: str) -> str:
        """Return the name of an enum's value, which may come as a name or as an integer."""
        value = self._left.pop(name, default)
        found = names.get(value) if isinstance(value, int) else value
        if found not in names.values():
            raise self.bad(name, value, "TYPE_ENUM")
        return str(found)

    def octets(self, name: str) -> bytes:
        """Return bytes from base64, in its plain or its URL form, padded or not."""
        text = self.text(name)
        plain = text.rstrip("=").translate(str.maketrans("-_", "+/"))
        try:
            return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise self.bad(name, text[:40], "TYPE_BYTES") from None

    def duration(self, name: str, default: timedelta) -> timedelta:
        """Return a time span such as 20s or 0.100s."""
        if name not in self._left:
            return default
        text = self.text(name)
        if not _DURATION.fullmatch(text):
            raise self.bad(name, text, "google.protobuf.Duration")
        return timedelta(seconds=float(text[:-1]))

    def time(self, name: str) -> datetime | None:
        """Return a moment in UTC; None when it is missing."""
        if name not in self._left:
            return None
        text = self.text(name)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self.bad(name, text, "google.protobuf.Timestamp")
