"""A row of the table of calls: all that a call is, wherever it is served, made or described."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
)

from pydantic.alias_generators import to_camel

from leasehold.errors import LeaseholdError
from leasehold.frozen import dataclass
from leasehold.registry.setting_texts import Right
from leasehold.services.engine import Engine

if TYPE_CHECKING:  # a function that takes no request needs none
    from leasehold.api.request_model import RequestModel

#: A body larger than this is refused unread: an input of 1 MiB, and what stands around it.
MAX_BODY_BYTES: Final = 1024 * 1024 + 64 * 1024

#: The header that says who asks, in UTF-8; where callers sign in, their account stands beside it.
ACTOR_HEADER: Final = "X-Leasehold-Actor"

Given = TypeVar("Given")
Answer = TypeVar("Answer")
Value = TypeVar("Value")


class Needs(StrEnum):
    """The requirements of a call: the place that can answer it, and the right of its caller.

    The engine of a function has all of it. A client of a store opens no more than this.
    """

    READ = "read"  # the store
    EXPLAIN = "explain"  # the store, and the rules of the catalog where there is one
    CATALOG = "catalog"  # the catalog, and what the store says of it
    PAUSE = "pause"  # the store: it changes runs, and dispatches no step
    CANCEL = "cancel"  # the store: without a catalog that can be used, the sweep tells channels
    CHANGE = "change"  # the catalog
    SWEEP = "sweep"  # the catalog; and what is due to channels is sent from here
    BEGIN = "begin"  # the catalog; and a store that is not there is made

    @property
    def right(self) -> Right:
        """The right that the caller needs."""
        if self in (Needs.READ, Needs.EXPLAIN, Needs.CATALOG):
            return Right.READ
        return Right.CANCEL if self is Needs.CANCEL else Right.CHANGE


class Created(NamedTuple, Generic[Value]):
    """An answer that says whether what it names was made by this call: a 201, else a 200."""

    value: Value
    is_new: bool


class JsonText(str):
    """An answer that is JSON text already, of any shape."""

    __slots__ = ()


class PlainText(str):
    """An answer that is a text in the format of Prometheus, and not JSON."""

    __slots__ = ()

    mimetype: ClassVar[str] = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class CallRequest(Generic[Given]):
    """One request, as a row answers it.

    Args:
        given: the body or the query; None: the row takes none.
        run_id: the run that the path names; so `step` and `name`.
        actor: who asks, for the trace; empty: the row records none.
        traceparent: the W3C trace context of the caller; empty: it sent none.
    """

    given: Given
    run_id: str = ""
    step: str = ""
    name: str = ""
    actor: str = ""
    traceparent: str = ""


class Columns(TypedDict, total=False):
    """The columns of a row that have a default; see `CallRow`."""

    needs: Needs
    needs_for: Callable[[Any], Needs]
    refuses: tuple[type[LeaseholdError], ...]
    limit: int
    creates: bool
    names_actor: bool
    omits_none: bool
    is_long: bool
    timeout_s: float


@dataclass(frozen=True, slots=True, eq=False)
class CallRow(Generic[Given, Answer]):
    """A call. Functions serve it, clients make it, the docs and the specification list it.

    Args:
        name: what programs call it by: its `operationId`.
        method: of HTTP.
        path: of HTTP, as werkzeug writes it; its parts are fields of `CallRequest`.
        says: what it does or answers, in a sentence or two.
        takes: the body of a POST, the query of a GET; None: neither is looked at.
        gives: what is answered; errors are `ErrorResponse`. `JsonValue`: JSON of any shape;
            `bytes`: a file, which is opened and read in blocks; or `PlainText`.
        answer: answers it, with an engine.
        needs: what it needs, and what its caller may do.
        needs_for: the same, where that depends on what is given; None: it does not.
        refuses: its own errors, for the docs; any call may refuse what it takes, and any
            store may be away.
        limit: the most bytes of a body.
        creates: it answers with `Created`.
        names_actor: who asks is kept, as `X-Leasehold-Actor` and the sign-in say it.
        omits_none: the answer has no fields that are null.
        is_long: an answer of it may take megabytes.
        timeout_s: how long a client waits for the answer.
    """

    name: str
    method: str
    path: str
    says: str
    takes: type[RequestModel] | None
    gives: Any
    answer: Callable[[Engine, CallRequest[Given]], Answer]
    needs: Needs = Needs.READ
    needs_for: Callable[[Any], Needs] | None = None
    refuses: tuple[type[LeaseholdError], ...] = ()
    limit: int = MAX_BODY_BYTES
    creates: bool = False
    names_actor: bool = False
    omits_none: bool = False
    is_long: bool = False
    timeout_s: float = 30.0

    def needed_for(self, given: Given) -> Needs:
        """Return what it needs to answer a request with this given."""
        return self.needs if self.needs_for is None else self.needs_for(given)


#: Any row of a table.
AnyRow = CallRow[Any, Any]


def call(
    method: str,
    path: str,
    gives: Any,
    takes: type[RequestModel] | None = None,
    *,
    name: str | None = None,
    **columns: Unpack[Columns],
) -> Callable[[Callable[[Engine, CallRequest[Given]], Answer]], CallRow[Given, Answer]]:
    """Return what makes a row of the function below it, whose docstring says what it does.

    Args:
        method: of HTTP; so `path`, `gives`, `takes` and the further columns, as of `CallRow`.
        path: as above.
        gives: as above.
        takes: as above; the function gets it as `given`.
        name: as above; None: that of the function.
        columns: as above.
    """

    def row_of(answer: Callable[[Engine, CallRequest[Given]], Answer]) -> CallRow[Given, Answer]:
        says = " ".join((answer.__doc__ or "").split())
        own = to_camel(answer.__name__) if name is None else name
        return CallRow(own, method, path, says, takes, gives, answer, **columns)

    return row_of
