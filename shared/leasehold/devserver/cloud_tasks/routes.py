"""The REST API of the Cloud Tasks service, as the official client uses it, and that of faults."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import flask
from werkzeug.exceptions import HTTPException

from leasehold.devserver.cloud_tasks import request
from leasehold.devserver.cloud_tasks.api_errors import ApiError, invalid
from leasehold.devserver.cloud_tasks.parsers import (
    TaskParser,
    apply_update_mask,
    parse_fault,
    parse_settings,
)
from leasehold.devserver.cloud_tasks.policies import Policies
from leasehold.devserver.cloud_tasks.queue import Queue
from leasehold.devserver.cloud_tasks.queues import Queues
from leasehold.devserver.cloud_tasks.serializers import Json, faults_json, queue_json, task_json
from leasehold.web.entry import drop_rest
from leasehold.web.loopback_guard import LoopbackGuard

_LOCATION: Final = "/v2/<path:parent>/queues"
_QUEUE: Final = f"{_LOCATION}/<queue>"
_TASK: Final = f"{_QUEUE}/tasks/<task>"
_log = logging.getLogger(__name__)

Route = tuple[str, str, Callable[..., Json]]  # method, path, and what answers


def make_app(
    queues: Queues, parser: TaskParser, on_request: Callable[[str, str], object] | None = None
) -> flask.Flask:
    """Return the WSGI application, for programs of this machine.

    Args:
        queues: what it is about.
        parser: of the tasks.
        on_request: called with method and path of each request; an ApiError of it is the answer.
    """
    app = app_of([*_Routes(queues, parser).all(), *fault_routes(queues)])
    if on_request:
        app.before_request(lambda: _hand(on_request))
    return app


def _hand(on_request: Callable[[str, str], object]) -> None:
    on_request(flask.request.method, flask.request.path)


def app_of(routes: Iterable[Route]) -> flask.Flask:
    """Return an application of these routes, which answers errors as Google's APIs do."""
    app = flask.Flask(__name__)
    app.wsgi_app = LoopbackGuard(app.wsgi_app)  # type: ignore[method-assign] # as Flask has it
    for method, path, view in routes:
        app.add_url_rule(path, f"{method} {path}", view, methods=[method])
    app.register_error_handler(ApiError, _error)
    app.register_error_handler(HTTPException, _no_route)
    app.register_error_handler(Exception, _internal_error)
    app.after_request(_drop_rest)
    return app


class _Routes:
    """What the routes of the service do: read the request, change the queues, answer.

    Those of a queue get its full name.
    """

    def __init__(self, queues: Queues, parser: TaskParser) -> None:
        self._queues = queues
        self._parser = parser
        self._policies = Policies()

    def all(self) -> Iterator[Route]:
        """Yield each route."""
        yield "POST", _LOCATION, self.create_queue
        yield "GET", _LOCATION, self.list_queues
        for method, path, view in (
            ("GET", _QUEUE, self.get_queue),
            ("PATCH", _QUEUE, self.update_queue),
            ("DELETE", _QUEUE, self.delete_queue),
            ("POST", f"{_QUEUE}:pause", self.pause_queue),
            ("POST", f"{_QUEUE}:resume", self.resume_queue),
            ("POST", f"{_QUEUE}:purge", self.purge_queue),
            ("POST", f"{_QUEUE}:getIamPolicy", self.get_policy),
            ("POST", f"{_QUEUE}:setIamPolicy", self.set_policy),
            ("POST", f"{_QUEUE}/tasks", self.create_task),
            ("GET", f"{_QUEUE}/tasks", self.list_tasks),
            ("GET", _TASK, self.get_task),
            ("DELETE", _TASK, self.delete_task),
        ):
            yield method, path, functools.partial(_with_queue_name, view)

    def create_queue(self, parent: str) -> Json:
        """Create a queue."""
        body = request.body()
        name = request.JsonObject(body, "queue").string("name")
        if name.rpartition("/queues/")[0] != parent:
            raise invalid(f"Queue name must be formatted: '{parent}/queues/<QUEUE_ID>'.")
        settings = parse_settings(body)
        return _queue_answer(self._queues.create(request.check_queue_name(name), settings))

    def list_queues(self, parent: str) -> Json:
        """List the queues of a location, a page at a time."""
        queues = self._queues.all(parent)
        return request.page("queues", [_queue_answer(queue) for queue in queues])

    def get_queue(self, name: str) -> Json:
        """Return a queue."""
        return _queue_answer(self._queues.queue(name))

    def update_queue(self, name: str) -> Json:
        """Change the settings of a queue; one that is missing is created."""
        new = parse_settings(request.body())
        mask = flask.request.args.get("updateMask", "")
        update = self._queues.update(name, lambda old: apply_update_mask(old, new, mask))
        return _queue_answer(update)

    def delete_queue(self, name: str) -> Json:
        """Delete a queue."""
        self._queues.remove(name)
        return {}

    def pause_queue(self, name: str) -> Json:
        """Start no more deliveries from a queue."""
        return _queue_answer(self._queues.pause(name, paused=True))

    def resume_queue(self, name: str) -> Json:
        """Start deliveries from a queue again."""
        return _queue_answer(self._queues.pause(name, paused=False))

    def purge_queue(self, name: str) -> Json:
        """Drop all tasks of a queue."""
        return _queue_answer(self._queues.purge(name))

    def get_policy(self, name: str) -> Json:
        """Return who may use a queue."""
        with self._queues.changed:
            self._queues.queue(name)
            return self._policies.get(name)

    def set_policy(self, name: str) -> Json:
        """Set who may use a queue."""
        given = request.body()
        policy = given.get("policy") if isinstance(given, dict) else None
        if not isinstance(policy, dict):
            raise invalid("Invalid value at 'policy': a JSON object is needed.")
        with self._queues.changed:
            self._queues.queue(name)
            return self._policies.set(name, policy)

    def create_task(self, name: str) -> Json:
        """Add a task to a queue."""
        task, view = self._parser.parse(request.body(), name, self._queues.now())
        state = self._queues.add(name, task)
        return task_json(name, state, view, integers=request.wants_integers())

    def list_tasks(self, name: str) -> Json:
        """List the tasks of a queue, a page at a time."""
        view, integers = request.view(), request.wants_integers()
        tasks = self._queues.tasks(name)
        rows = [task_json(name, state, view, integers=integers) for state in tasks]
        return request.page("tasks", rows)

    def get_task(self, name: str, task: str) -> Json:
        """Return a task."""
        state = self._queues.task(name, task)
        return task_json(name, state, request.view(), integers=request.wants_integers())

    def delete_task(self, name: str, task: str) -> Json:
        """Drop a task."""
        self._queues.delete(name, task)
        return {}


def _with_queue_name(view: Callable[..., Json], parent: str, queue: str, **rest: str) -> Json:
    return view(request.check_queue_name(f"{parent}/queues/{queue}"), **rest)


def _queue_answer(queue: Queue) -> Json:
    return queue_json(queue, integers=request.wants_integers())


def fault_routes(queues: Queues) -> list[Route]:
    """Return the routes by which tests and `leasehold dev` order faults from outside."""

    def get_faults() -> Json:
        with queues.changed:
            return faults_json(queues.faults)

    def order_faults() -> Json:
        order = parse_fault(request.body())
        with queues.changed:
            queues.faults.order(**order)
            return faults_json(queues.faults)

    def clear_faults() -> Json:
        with queues.changed:
            queues.faults.clear()
            return faults_json(queues.faults)

    return [
        ("GET", "/faults", get_faults),
        ("POST", "/faults", order_faults),
        ("DELETE", "/faults", clear_faults),
    ]


def _error(error: ApiError) -> tuple[Json, int]:
    return error.body(), error.http_status


def _no_route(_: HTTPException) -> tuple[Json, int]:
    """Answer what no route takes; Google's APIs have no 405 either."""
    method, path = flask.request.method, flask.request.path
    return _error(ApiError("NOT_FOUND", f"No such route: {method} {path}"))


def _internal_error(error: Exception) -> tuple[Json, int]:
    _log.error("The double failed", exc_info=error)
    return _error(ApiError("INTERNAL", f"{type(error).__name__}: {error}"))


def _drop_rest(answer: flask.Response) -> flask.Response:
    """Drop what was not read of the body, for a client that still sends."""
    drop_rest(flask.request)
    return answer
