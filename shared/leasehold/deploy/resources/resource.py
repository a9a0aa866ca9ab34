"""A resource of an installation: looked at, created where it is missing, and never deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from leasehold.frozen import dataclass


class State(StrEnum):
    """The result of a look at a resource."""

    MISSING = "missing"  # it is created
    PRESENT = "present"  # it is as it should be
    DIFFERENT = "different"  # it is left alone, unless it may be changed and that is asked for
    WAITING = "waiting"  # for something that is deployed later, or that a person has to do
    UNKNOWN = "unknown"  # it could not be looked at


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not what it should be."""

    field: str
    found: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Look:
    """What was found.

    Args:
        state: what that comes to.
        differences: for `State.DIFFERENT`, what differs.
        why: for `State.WAITING`, for what; for `State.UNKNOWN`, what went wrong; in one line.
        repair: a command that a person may type about it; empty: there is none.
        since: for `State.WAITING`, since when, where Google says so.
        by_hand: whether a person alone changes it, even where an update is asked for.
    """

    state: State
    differences: tuple[Difference, ...] = ()
    why: str = ""
    repair: str = ""
    since: datetime | None = None
    by_hand: bool = False


class NotYetError(Exception):
    """It cannot be created yet, which is no failure: the next `apply` does; the text says why."""


class BusyError(Exception):
    """It takes no further change before earlier ones are done, which is no failure either.

    Args:
        why: who is busy with what, in one line without a full stop.
        progressed: whether this call has changed something before it was refused.
    """

    def __init__(self, why: str, *, progressed: bool = False) -> None:
        super().__init__(why)
        self.progressed = progressed


MISSING = Look(State.MISSING)
PRESENT = Look(State.PRESENT)


class Resource(Protocol):
    """Something that an installation has in Google Cloud.

    `look` makes no call that writes. `create` is called where a look found it missing; where that
    raises AlreadyExists, it is looked at again. Calls have the keywords `**ONE_TRY` of
    `leasehold.google_clients.clients`: `leasehold.deploy.steps` calls either once more for what may
    pass, as an outage, or an etag that is another one meanwhile, and waits where `create`
    raises BusyError. The last error is reported in one line (see
    `leasehold.google_clients.call_errors`), and the other resources go on.
    """

    @property
    def kind(self) -> str:
        """What it is, in a word or two: `queue`."""
        ...

    @property
    def name(self) -> str:
        """Which one, as people know it."""
        ...

    def look(self) -> Look:
        """Return what is there."""
        ...

    def create(self) -> None:
        """Create it."""
        ...


@runtime_checkable
class Updatable(Resource, Protocol):
    """A resource that `apply --update` may change."""

    def update(self) -> None:
        """Make it what it should be."""
        ...


@runtime_checkable
class Repairable(Resource, Protocol):
    """A resource each of whose differences is repaired by itself."""

    def repair_of(self, differing: Sequence[Difference]) -> str:
        """Return the command that makes these values what they should be."""
        ...


@runtime_checkable
class Dependent(Resource, Protocol):
    """A resource that is not looked at while another one is not there."""

    @property
    def needs(self) -> Sequence[Resource]:
        """What has to be there, and stands before it in the order; known by kind and name."""
        ...


@runtime_checkable
class LookedAtAgain(Resource, Protocol):
    """A resource of which there is more to say once it is created: a secret is empty then.

    What Google names may be there twice, after two applies at once: no create can be refused. The
    later apply sees both.
    """

    def look_again(self) -> Look:
        """Return what is there now, whatever was found before."""
        ...


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Difference]:
    """Yield each value that is not as wanted, in the order of the wanted values."""
    for field, value in wanted.items():
        if found.get(field, "") != value:
            yield Difference(field, found.get(field, "") or "none", value)


def seconds(span: timedelta | None) -> str:
    """Return a span as gcloud takes it: `10s`, `0.1s`; empty: there is none."""
    return "" if span is None else f"{span.total_seconds():.3f}".rstrip("0").rstrip(".") + "s"
