"""Reading deliveries: those of one run, and a page of all; nothing here writes.

They are read without the catalog: a removed channel got its announcements all the same.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of
from leasehold.domain.json_text import digest
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import run_mark
from leasehold.errors import UnreadableDeliveryError
from leasehold.frozen import dataclass
from leasehold.ports.documents import Query, Snapshot
from leasehold.services.engine import Engine, find_run
from leasehold.services.paging import SCAN_PAGE, place_behind, place_of, scan, token_of
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS

#: Lists are newest first.
_ORDER: Final = "createdAt"
_NEWEST: Final = Query("deliveries", order_by=_ORDER, descending=True, limit=SCAN_PAGE)


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries to list; a field that is None is not looked at.

    Args:
        channel: those to this channel.
        state: those in this state.
    """

    channel: str | None = None
    state: DeliveryState | None = None


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries, and where the next ones begin; None: there are no more."""

    deliveries: list[Delivery]
    next_page_token: str | None


def read_deliveries(engine: Engine, run_id: str) -> list[Delivery]:
    """Return all deliveries of a run, newest first; UnknownRunError where there is no such run."""
    return deliveries_of_run(engine, find_run(engine, run_id).manifest)


def deliveries_of_run(engine: Engine, run: Manifest) -> list[Delivery]:
    """Return all deliveries of a run, newest first.

    What an earlier run of this id left is none of them; one that cannot be read is logged.
    """
    if run.announcement is None:
        return []
    query = replace(_NEWEST, equal={"runId": run.run_id})
    mark = run_mark(run)
    found = (_readable(engine, one) for one in scan(engine.documents, query))
    return [one for one in found if one is not None and one.mark == mark]


def list_deliveries(
    engine: Engine,
    wanted: DeliveryFilter,
    *,
    limit: int = DEFAULT_PAGE_ITEMS,
    page_token: str | None = None,
) -> DeliveryPage:
    """Return the deliveries that fit, newest first.

    Args:
        engine: the parts.
        wanted: which deliveries.
        limit: how many at most. A page has fewer where some cannot be read, and more may come.
        page_token: of an earlier page of the same filter; None: the first page.

    Raises:
        InvalidRequestError: the page token is not one of this filter.
    """
    mark = digest(repr(wanted))[:8]
    query = replace(
        _NEWEST,
        equal={name: value for name, value in asdict(wanted).items() if value is not None},
        after=None if page_token is None else place_of(page_token, mark),
        limit=limit + 1,  # one more tells whether there is a next page
    )
    found = engine.documents.query(query)
    page = found[:limit]
    is_last = len(found) == len(page)
    token = None if is_last else token_of(place_behind(page[-1], _ORDER), mark)
    deliveries = [one for it in page if (one := _readable(engine, it)) is not None]
    return DeliveryPage(deliveries, token)


def _readable(engine: Engine, found: Snapshot) -> Delivery | None:
    """Return the delivery, or None for one that would hide all the others of its page."""
    try:
        return delivery_of(found.ref, found.document)
    except UnreadableDeliveryError as error:
        engine.listeners.log(str(error))
        return None
