"""The REST surface of the Cloud Tasks service, as the official client uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import flask
from werkzeug.exceptions import HTTPException

from leasehold.devserver.cloud_tasks import asked
from leasehold.devserver.cloud_tasks.fault_routes import fault_routes
from leasehold.devserver.cloud_tasks.fields import Fields
from leasehold.devserver.cloud_tasks.masks import masked
from leasehold.devserver.cloud_tasks.queue import Queue
from leasehold.devserver.cloud_tasks.queues import Queues
from leasehold.devserver.cloud_tasks.reading_queues import check_queue_name, read_settings
from leasehold.devserver.cloud_tasks.reading_tasks import read_task
from leasehold.devserver.cloud_tasks.refusals import RefusedError, invalid
from leasehold.devserver.cloud_tasks.showing import Shown, show_queue, show_task
from leasehold.devserver.cloud_tasks.targets import Targets
from leasehold.devserver.loopback_only import LoopbackOnly
from leasehold.ports.clock import Clock
from leasehold.web.request_body import drop_rest

_LOCATION: Final = "/v2/<path:parent>/queues"
_QUEUE: Final = f"{_LOCATION}/<queue>"
_TASK: Final = f"{_QUEUE}/tasks/<task>"
_log = logging.getLogger(__name__)


class Surface:
    """What the routes do: read the request, change the queues, show the answer.

    Args:
        queues: what they are about.
        clock: for schedules and for names.
        shortest_deadline: the shortest dispatch deadline that is taken.
        targets: where tasks may lead.
    """

    def __init__(
        self, queues: Queues, clock: Clock, shortest_deadline: timedelta, targets: Targets
    ) -> None:
        self._queues = queues
        self._clock = clock
        self._shortest = shortest_deadline
        self._targets = targets

    def routes(self) -> list[tuple[str, str, Callable[..., Shown]]]:
        """Return each route: method, path, and what it does."""
        return [
            ("POST", f"{_QUEUE}/tasks", self.create_task),
            ("GET", f"{_QUEUE}/tasks", self.list_tasks),
            ("GET", _TASK, self.get_task),
            ("DELETE", _TASK, self.delete_task),
            ("POST", _LOCATION, self.create_queue),
            ("GET", _LOCATION, self.list_queues),
            ("GET", _QUEUE, self.get_queue),
            ("PATCH", _QUEUE, self.update_queue),
            ("POST", f"{_QUEUE}:pause", self.pause_queue),
            ("POST", f"{_QUEUE}:resume", self.resume_queue),
            ("POST", f"{_QUEUE}:purge", self.purge_queue),
        ]

    def create_task(self, parent: str, queue: str) -> Shown:
        """Take a task."""
        name = asked.queue_name(parent, queue)
        task, view = read_task(
            asked.body(),
            name,
            now=self._clock.now(),
            new_name=lambda: str(int(self._clock.new_id(), 16)),
            shortest=self._shortest,
            targets=self._targets,
        )
        return show_task(name, self._queues.add(name, task), view, asked.enum_form())

    def list_tasks(self, parent: str, queue: str) -> Shown:
        """List the tasks of a queue, a page at a time."""
        name = asked.queue_name(parent, queue)
        shown = [
            show_task(name, held, asked.view(), asked.enum_form())
            for held in self._queues.tasks(name)
        ]
        return asked.page("tasks", shown)

    def get_task(self, parent: str, queue: str, task: str) -> Shown:
        """Show a task."""
        name = asked.queue_name(parent, queue)
        return show_task(name, self._queues.task(name, task), asked.view(), asked.enum_form())

    def delete_task(self, parent: str, queue: str, task: str) -> Shown:
        """Drop a task."""
        self._queues.delete(asked.queue_name(parent, queue), task)
        return {}

    def create_queue(self, parent: str) -> Shown:
        """Make a queue."""
        body = asked.body()
        fields = Fields(body, "queue")
        name = fields.text("name")
        if name.rpartition("/queues/")[0] != parent:
            raise invalid(f"Queue name must be formatted: '{parent}/queues/<QUEUE_ID>'.")
        settings = read_settings(Fields(body, "queue"))
        return _shown(self._queues.create(check_queue_name(name), settings))

    def list_queues(self, parent: str) -> Shown:
        """List the queues of a location, a page at a time."""
        return asked.page("queues", [_shown(queue) for queue in self._queues.all(parent)])

    def get_queue(self, parent: str, queue: str) -> Shown:
        """Show a queue."""
        return _shown(self._queues.queue(asked.queue_name(parent, queue)))

    def update_queue(self, parent: str, queue: str) -> Shown:
        """Change the settings of a queue; one that is missing is made."""
        new = read_settings(Fields(asked.body(), "queue"))
        mask = flask.request.args.get("updateMask", "")
        name = check_queue_name(asked.queue_name(parent, queue))
        return _shown(self._queues.update(name, lambda old: masked(old, new, mask)))

    def pause_queue(self, parent: str, queue: str) -> Shown:
        """Start no more deliveries from a queue."""
        return _shown(self._queues.pause(asked.queue_name(parent, queue), paused=True))

    def resume_queue(self, parent: str, queue: str) -> Shown:
        """Go on with a queue."""
        return _shown(self._queues.pause(asked.queue_name(parent, queue), paused=False))

    def purge_queue(self, parent: str, queue: str) -> Shown:
        """Drop all tasks of a queue."""
        return _shown(self._queues.purge(asked.queue_name(parent, queue)))


def make_app(surface: Surface, queues: Queues) -> flask.Flask:
    """Return the WSGI application, for programs of this machine."""
    app = flask.Flask(__name__)
    app.wsgi_app = LoopbackOnly(app.wsgi_app)  # type: ignore[method-assign] # as Flask has it
    for method, path, view in surface.routes():
        app.add_url_rule(path, f"{method} {path}", view, methods=[method])
    app.register_blueprint(fault_routes(queues))
    app.register_error_handler(RefusedError, _refuse)
    app.register_error_handler(HTTPException, _no_route)
    app.register_error_handler(Exception, _broken)
    app.after_request(_dropped)
    return app


def _refuse(error: RefusedError) -> tuple[Shown, int]:
    return error.body(), error.http


def _no_route(_: HTTPException) -> tuple[Shown, int]:
    """Answer what no route takes; Google knows no 405 either."""
    request = flask.request
    return _refuse(RefusedError("NOT_FOUND", f"No such route: {request.method} {request.path}"))


def _dropped(answer: flask.Response) -> flask.Response:
    """Drop what was not read of the body, for a client that still sends."""
    drop_rest(flask.request)
    return answer


def _broken(error: Exception) -> tuple[Shown, int]:
    _log.error("The Cloud Tasks double failed", exc_info=error)
    return _refuse(RefusedError("INTERNAL", f"{type(error).__name__}: {error}"))


def _shown(queue: Queue) -> Shown:
    return show_queue(queue, asked.enum_form())
