"""What the methods of a client take, and how it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypedDict

from leasehold.client.run_wait import OnChange
from leasehold.domain.json_text import canonical, plain
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import Summary
from leasehold.errors import InvalidRequestError

_MAX_SHOWN: Final = 200

#: A run: its id, or what another call answered of it.
Run = str | Summary | Manifest


class Filters(TypedDict, total=False):
    """Which runs: all that is given must hold; None is not given.

    `label` is "key:value"; `since` and `until` are when they began, `step` is where they are. A
    status does not find the runs that were cancelled in it: `cancelled=True` does.
    """

    status: RunStatus | str | None
    pipeline: str | None
    dead_lettered: bool | None
    label: str | None
    paused: bool | None
    cancelled: bool | None
    since: datetime | str | None
    until: datetime | str | None
    step: str | None


class Decision(TypedDict, total=False):
    """What goes with an operation.

    `reason` is kept in the run's trace. `generation` and `step` are those of the run that was
    looked at: where it is at another one by now, StateChangedError is raised and nothing is done.
    """

    reason: str
    generation: int | None
    step: str | None


class StartOptions(TypedDict, total=False):
    """How a run is started; see `Client.start`."""

    idempotency_key: str | None
    labels: Mapping[str, str] | None
    max_retries: int | None


class RunOptions(StartOptions, total=False):
    """How a run is started and waited for; see `Client.start` and `Client.wait`."""

    timeout: float | None
    on_change: OnChange | None


def id_of(run: Run) -> str:
    """Return the id of a run."""
    return run if isinstance(run, str) else run.run_id


def filter_fields(wanted: Filters) -> dict[str, Any]:
    """Return the fields of a filter that are given, as JSON has them."""
    given = ((name, value) for name, value in wanted.items() if value is not None)
    return {name: it.isoformat() if isinstance(it, datetime) else it for name, it in given}


def start_options(how: RunOptions) -> StartOptions:
    """Return how a run is started, without how it is waited for."""
    return StartOptions(
        idempotency_key=how.get("idempotency_key"),
        labels=how.get("labels"),
        max_retries=how.get("max_retries"),
    )


def plain_input(value: Any) -> Any:
    """Return the JSON value of an input, which may be a model.

    Raises:
        InvalidRequestError: JSON has no such value.
    """
    given = plain(value)
    try:
        canonical(given)
    except (ValueError, TypeError) as error:
        allowed = f"a pydantic model, or a JSON value ({error})"
        shown = f"{type(value).__name__}: {value!r}"[:_MAX_SHOWN]
        raise InvalidRequestError(field="input", value=shown, allowed=allowed) from None
    return given
