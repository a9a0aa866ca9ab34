"""The routes under /faults: what tests and `leasehold dev` order from outside."""

from __future__ import annotations

from typing import Any

import flask

from leasehold.devserver.cloud_tasks import asked
from leasehold.devserver.cloud_tasks.faults import Fault
from leasehold.devserver.cloud_tasks.fields import Fields
from leasehold.devserver.cloud_tasks.queues import Queues


def fault_routes(queues: Queues) -> flask.Blueprint:
    """Return the routes: GET lists, POST orders, DELETE forgets.

    POST takes {"kind", "count", "queue", "containing", "seconds"}, all but the kind optional.
    """
    routes = flask.Blueprint("faults", __name__)

    def show() -> dict[str, Any]:
        with queues.changed:
            return _listed(queues)

    def order() -> dict[str, Any]:
        ordered = _read()
        with queues.changed:
            queues.faults.order(**ordered)
            return _listed(queues)

    def forget() -> dict[str, Any]:
        with queues.changed:
            queues.faults.clear()
            return _listed(queues)

    routes.get("/faults")(show)
    routes.post("/faults")(order)
    routes.delete("/faults")(forget)
    return routes


def _read() -> dict[str, Any]:
    fields = Fields(asked.body(), "fault")
    kinds = dict(enumerate(Fault))
    ordered: dict[str, Any] = {
        "kind": fields.enum("kind", {place: str(kind) for place, kind in kinds.items()}, ""),
        "count": fields.whole("count", 1, 1, 10_000),
        "queue": fields.text("queue") or None,
        "containing": fields.text("containing"),
        "seconds": fields.number("seconds", -1, -1, 86_400),
    }
    fields.end()
    if ordered["seconds"] < 0:
        ordered["seconds"] = None  # as it is by default
    return ordered


def _listed(queues: Queues) -> dict[str, Any]:
    faults = queues.faults
    ordered = [
        {"kind": it.kind, "queue": it.queue, "containing": it.containing, "seconds": it.seconds}
        for it in faults.ordered
    ]
    fired = [
        {"kind": it.kind, "queue": it.queue, "task": it.task, "at": it.at.isoformat()}
        for it in faults.fired
    ]
    return {"ordered": ordered, "fired": fired}
