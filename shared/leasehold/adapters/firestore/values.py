"""Values as Firestore's protocol has them.

On the plain protobuf messages, which cost a tenth of the client's own conversion; and what comes
back are plain datetimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.cloud.firestore_v1.types import document as types
from google.protobuf.timestamp_pb2 import Timestamp

#: The protobuf class of a value.
Value: Final[Any] = types.Value.pb()

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class OtherValue:
    """A value of a kind that no Leasehold writes, such as a geo point: kept as it is.

    Args:
        message: the protobuf message of the value.
    """

    def __init__(self, message: Any) -> None:
        self.message = Value()
        self.message.CopyFrom(message)

    def __str__(self) -> str:
        return " ".join(str(self.message).split())


def encode_fields(fields: Any, values: Mapping[str, Any]) -> None:
    """Put the values into the `fields` of a document or a map."""
    for name, value in values.items():
        encode(fields[name], value)


def encode(into: Any, value: Any) -> None:  # noqa: C901 - a case a kind
    """Put a value into the protobuf message of a value.

    Raises:
        TypeError: Firestore has no such value. A mistake in the program, not in the data.
    """
    match value:
        case None:
            into.null_value = 0
        case bool():
            into.boolean_value = value
        case str():
            into.string_value = str(value)
        case int():
            into.integer_value = value
        case float():
            into.double_value = value
        case datetime():
            into.timestamp_value.CopyFrom(to_timestamp(value))
        case OtherValue():
            into.CopyFrom(value.message)
        case Mapping():
            into.map_value.SetInParent()
            encode_fields(into.map_value.fields, value)
        case list() | tuple():
            into.array_value.SetInParent()
            for one in value:
                encode(into.array_value.values.add(), one)
        case _:
            raise TypeError(f"a document cannot hold {value!r}")


def encoded(value: Any) -> Any:
    """Return the protobuf message of a value."""
    message = Value()
    encode(message, value)
    return message


def decode_fields(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of a document's or a map's fields."""
    return {name: decode(value) for name, value in fields}


def decode(value: Any) -> Any:
    """Return what a protobuf message of a value stands for."""
    kind = value.WhichOneof("value_type")
    match kind:
        case "null_value":
            return None
        case "timestamp_value":
            return to_datetime(value.timestamp_value)
        case "map_value":
            return decode_fields(value.map_value.fields.items())
        case "array_value":
            return [decode(one) for one in value.array_value.values]
        case "boolean_value" | "integer_value" | "double_value" | "string_value":
            return getattr(value, kind)
        case _:
            return OtherValue(value)


def to_timestamp(value: datetime) -> Any:
    """Return a time as a protobuf message, exact to the microsecond."""
    microseconds = (value - _EPOCH) // _MICROSECOND
    seconds, rest = divmod(microseconds, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def to_datetime(timestamp: Any) -> datetime:
    """Return the time of a protobuf message, in UTC; below the microsecond it is cut."""
    return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)


def to_version(timestamp: Any) -> int:
    """Return an update time as the version of a document: nanoseconds since 1970."""
    return int(timestamp.seconds * 1_000_000_000 + timestamp.nanos)


def from_version(version: int) -> Any:
    """Return the update time that a version stands for, as a protobuf message."""
    seconds, nanos = divmod(version, 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)
