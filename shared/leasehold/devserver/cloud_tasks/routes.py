"""The REST API of the Cloud Tasks service, as the official client uses it, and that of faults."""

from __future__ import annotations

import base64
import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

import flask
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map

from leasehold.devserver.cloud_tasks import request
from leasehold.devserver.cloud_tasks.faults import Fault, Faults
from leasehold.devserver.cloud_tasks.http_client import AllowedHosts, check_headers
from leasehold.devserver.cloud_tasks.queue import Queue, Queues, QueueSettings, RateLimits
from leasehold.devserver.cloud_tasks.request import VIEWS, ApiError, JsonObject, invalid
from leasehold.devserver.cloud_tasks.task import HttpTask, OidcToken, RetryConfig, TaskState
from leasehold.frozen import dataclass
from leasehold.web.entry import drop_rest
from leasehold.web.loopback_guard import LoopbackGuard

# Bodies of requests read into tasks, settings of queues and faults, or refused.


METHODS: Final = dict(
    enumerate(("POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"), start=1)
)
MIN_TASK_DEADLINE: Final = timedelta(seconds=15)
_MAX_TASK_DEADLINE: Final = timedelta(minutes=30)
_DEFAULT_DEADLINE: Final = timedelta(minutes=10)
_MAX_SCHEDULE_AHEAD: Final = timedelta(days=30)
_MAX_TASK_BYTES: Final = 1_048_569  # measured
_TASK_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,500}", re.ASCII)

#: What the service fills in, and ignores in a request.
_OUTPUT_OF_TASK: Final = (
    "createTime",
    "dispatchCount",
    "responseCount",
    "firstAttempt",
    "lastAttempt",
    "view",
)
_OUTPUT_OF_QUEUE: Final = ("name", "state", "purgeTime", "stackdriverLoggingConfig")

#: What an update mask may name, and which of our settings that is.
_MASKS: Final = {"retryConfig": ("retry", RetryConfig), "rateLimits": ("rate", RateLimits)}


@dataclass(frozen=True, slots=True)
class TaskParser:
    """Reads tasks.

    Args:
        shortest: the shortest dispatch deadline that is accepted.
        hosts: where a task may lead.
        new_name: names a task that has no name.
    """

    shortest: timedelta
    hosts: AllowedHosts
    new_name: Callable[[], str]

    def parse(self, body: Any, queue: str, now: datetime) -> tuple[HttpTask, str]:
        """Read the body of a create, a task for the queue of this full name.

        Returns:
            The task, and the view of it that the caller wants.
        """
        request = JsonObject(body, "request")
        view = request.enum("responseView", VIEWS, "BASIC")
        given = request.object("task")
        if given is None:
            raise invalid("Task must be set.")
        request.refuse_unknown()
        name = _task_id(given.string("name"), queue) or self.new_name()
        http = given.object("httpRequest")
        if http is None:
            raise invalid("Task.http_request must be set: the double delivers HTTP tasks only.")
        retry = given.object("retryConfig")
        task = HttpTask(
            name=name,
            not_before=_schedule_time(given, now),
            deadline=self._deadline(given),
            retry=None if retry is None else _retry_config(retry),
            **self._http_request(http),
        )
        given.refuse_unknown(*_OUTPUT_OF_TASK)
        return task, view

    def _deadline(self, given: JsonObject) -> timedelta:
        deadline = given.duration("dispatchDeadline", _DEFAULT_DEADLINE)
        if not self.shortest <= deadline <= _MAX_TASK_DEADLINE:
            allowed = (
                f"[{self.shortest.total_seconds():g}s, {_MAX_TASK_DEADLINE.total_seconds():g}s]"
            )
            raise invalid(f"Task.dispatch_deadline must be between {allowed}.")
        return deadline

    def _http_request(self, given: JsonObject) -> dict[str, Any]:
        url = given.string("url")
        method = given.enum("httpMethod", METHODS, "POST")
        headers = given.strings("headers")
        body = given.bytes_of("body")
        token = _token(given.object("oidcToken"), url)
        given.refuse_unknown()
        self.hosts.check(url)
        check_headers(headers)
        if body and method not in {"POST", "PUT", "PATCH"}:
            raise invalid(f"HTTP method {method} cannot have a body.")
        if len(url) + len(body) + sum(map(len, [*headers, *headers.values()])) > _MAX_TASK_BYTES:
            raise invalid(f"Task size too large: at most {_MAX_TASK_BYTES} bytes.")
        return {"url": url, "method": method, "headers": headers, "body": body, "token": token}


def _task_id(name: str, queue: str) -> str:
    if not name:
        return ""
    parent, _, task_id = name.rpartition("/tasks/")
    if parent != queue or not _TASK_ID.fullmatch(task_id):
        raise invalid(f"Task name must be formatted: '{queue}/tasks/<TASK_ID>'; it is '{name}'.")
    return task_id


def _schedule_time(given: JsonObject, now: datetime) -> datetime:
    time = given.timestamp("scheduleTime") or now
    if time > now + _MAX_SCHEDULE_AHEAD:
        raise invalid("Task.schedule_time must be at most 30 days in the future.")
    return time


def _token(given: JsonObject | None, url: str) -> OidcToken | None:
    if given is None:
        return None
    token = OidcToken(given.string("serviceAccountEmail"), given.string("audience") or url)
    given.refuse_unknown()
    return token


def parse_settings(body: Any) -> QueueSettings:
    """Read the settings of a queue; what is missing is as the service has it by default."""
    given = JsonObject(body, "queue")
    retry, rate = given.object("retryConfig"), given.object("rateLimits")
    settings = QueueSettings(
        retry=RetryConfig() if retry is None else _retry_config(retry),
        rate=RateLimits() if rate is None else _rate_limits(rate),
    )
    given.refuse_unknown(*_OUTPUT_OF_QUEUE)
    return settings


def _retry_config(given: JsonObject) -> RetryConfig:
    default = RetryConfig()
    retry = RetryConfig(
        max_attempts=given.integer("maxAttempts", 0, -1, 2**31 - 1) or default.max_attempts,
        max_retry_duration=given.duration("maxRetryDuration", default.max_retry_duration),
        min_backoff=given.duration("minBackoff", default.min_backoff),
        max_backoff=given.duration("maxBackoff", default.max_backoff),
        max_doublings=given.integer("maxDoublings", default.max_doublings, 0, 16),
    )
    given.refuse_unknown()
    if not timedelta() <= retry.min_backoff <= retry.max_backoff:
        raise invalid("RetryConfig: min_backoff must be 0 or more and at most max_backoff.")
    if retry.max_retry_duration < timedelta():
        raise invalid("RetryConfig.max_retry_duration must be 0 or more.")
    return retry


def _rate_limits(given: JsonObject) -> RateLimits:
    default = RateLimits()
    rate = RateLimits(
        given.number("maxDispatchesPerSecond", default.max_dispatches_per_second, 0.001, 500),
        given.integer("maxConcurrentDispatches", default.max_concurrent_dispatches, 1, 5000),
    )
    given.refuse_unknown("maxBurstSize")
    return rate


def apply_update_mask(old: QueueSettings, new: QueueSettings, mask: str) -> QueueSettings:
    """Return the old settings with what the mask names from the new ones; no mask: all.

    Raises:
        ApiError: the mask names something that is not a setting, or cannot be set.
    """
    paths = [path for path in mask.split(",") if path and path != "name"]
    if not paths:
        return new
    for path in paths:
        old = _with_one(old, new, path)
    return old


def _with_one(old: QueueSettings, new: QueueSettings, path: str) -> QueueSettings:
    part, _, leaf = path.partition(".")
    if part not in _MASKS:
        raise invalid(f"Invalid update_mask: '{path}' cannot be updated.")
    name, kind = _MASKS[part]
    value: Any = getattr(new, name)
    if leaf:
        field = re.sub("([A-Z])", r"_\1", leaf).lower()
        if field not in {known.name for known in fields(kind)}:
            raise invalid(f"Invalid update_mask: '{path}' cannot be updated.")
        value = replace(getattr(old, name), **{field: getattr(value, field)})
    changed: QueueSettings = replace(old, **{name: value})
    return changed


def parse_fault(body: Any) -> dict[str, Any]:
    """Read an order of faults into the arguments of `Faults.order`.

    The fields are kind, count, queue, containing and seconds; all but the kind are optional.
    """
    given = JsonObject(body, "fault")
    kinds = {number: str(kind) for number, kind in enumerate(Fault)}
    seconds = given.number("seconds", -1, -1, 86_400)
    order = {
        "kind": given.enum("kind", kinds, ""),
        "count": given.integer("count", 1, 1, 10_000),
        "queue": given.string("queue") or None,
        "containing": given.string("containing"),
        "seconds": None if seconds < 0 else seconds,  # None: as it is by default
    }
    given.refuse_unknown()
    return order


# Tasks, queues and faults as JSON: those of the service as the service writes them.


Json = dict[str, Any]  # an object that is to be sent
_STATES: Final = {1: "RUNNING", 2: "PAUSED"}


def task_json(queue: str, state: TaskState, view: str, *, integers: bool) -> Json:
    """Return a task.

    Args:
        queue: the full name of its queue.
        state: the task.
        view: FULL: with its body.
        integers: whether enums are written as integers, and not as names.
    """
    full = view == "FULL"
    task = state.task
    json: Json = {
        "name": f"{queue}/tasks/{task.name}",
        "httpRequest": _http_request(task, full=full, integers=integers),
        "scheduleTime": _timestamp(state.eta),
        "createTime": _timestamp(state.created),
        "dispatchDeadline": _duration(task.deadline),
        "dispatchCount": state.attempts,
        "responseCount": state.responses,
        "view": _enum(VIEWS, "FULL" if full else "BASIC", integers=integers),
    }
    if state.first_attempt and state.last_attempt:
        json["firstAttempt"] = {"dispatchTime": _timestamp(state.first_attempt)}
        json["lastAttempt"] = {"dispatchTime": _timestamp(state.last_attempt)}
    return json


def queue_json(queue: Queue, *, integers: bool) -> Json:
    """Return a queue; `integers`: as for a task."""
    retry, rate = queue.settings.retry, queue.settings.rate
    json: Json = {
        "name": queue.name,
        "rateLimits": {
            "maxDispatchesPerSecond": rate.max_dispatches_per_second,
            "maxBurstSize": rate.max_burst_size,
            "maxConcurrentDispatches": rate.max_concurrent_dispatches,
        },
        "retryConfig": {
            "maxAttempts": retry.max_attempts,
            "maxRetryDuration": _duration(retry.max_retry_duration),
            "minBackoff": _duration(retry.min_backoff),
            "maxBackoff": _duration(retry.max_backoff),
            "maxDoublings": retry.max_doublings,
        },
        "state": _enum(_STATES, "PAUSED" if queue.paused else "RUNNING", integers=integers),
    }
    if queue.purged_at:
        json["purgeTime"] = _timestamp(queue.purged_at)
    return json


def faults_json(faults: Faults) -> Json:
    """Return the faults that are ordered, and those that fired."""
    ordered = [
        {"kind": it.kind, "queue": it.queue, "containing": it.containing, "seconds": it.seconds}
        for it in faults.ordered
    ]
    fired = [
        {"kind": it.kind, "queue": it.queue, "task": it.task, "at": it.at.isoformat()}
        for it in faults.fired
    ]
    return {"ordered": ordered, "fired": fired}


def _http_request(task: HttpTask, *, full: bool, integers: bool) -> Json:
    json: Json = {
        "url": task.url,
        "httpMethod": _enum(METHODS, task.method, integers=integers),
        "headers": dict(task.headers or {}) | {"User-Agent": "Google-Cloud-Tasks"},
    }
    if full:
        json["body"] = base64.b64encode(task.body).decode()
    if task.token:
        json["oidcToken"] = {
            "serviceAccountEmail": task.token.email,
            "audience": task.token.audience,
        }
    return json


def _enum(names: Mapping[int, str], name: str, *, integers: bool) -> int | str:
    if integers:
        return next(number for number, known in names.items() if known == name)
    return name


def _timestamp(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _duration(span: timedelta) -> str:
    return f"{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


# Who may use a queue: kept as it is given, and not enforced on one machine.


class Policies:
    """The policies of queues; the caller holds a lock."""

    def __init__(self) -> None:
        self._policies: dict[str, tuple[int, dict[str, Any]]] = {}  # with the number of its change

    def get(self, queue: str) -> dict[str, Any]:
        """Return the policy of a queue; it is empty unless it was set."""
        change, policy = self._policies.get(queue, (0, {}))
        return {**policy, "etag": base64.b64encode(b"%d" % change).decode()}

    def set(self, queue: str, policy: dict[str, Any]) -> dict[str, Any]:
        """Replace the policy of a queue, unless it has changed since it was read."""
        kept = self.get(queue)["etag"]
        if policy.get("etag", kept) != kept:
            raise ApiError("ABORTED", "There were concurrent policy changes; read it again.")
        change, _ = self._policies.get(queue, (0, {}))
        self._policies[queue] = (change + 1, policy)
        return self.get(queue)


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
    views = {(method, path): view for method, path, view in routes}
    app = flask.Flask(__name__, static_folder=None)
    app.wsgi_app = LoopbackGuard(app.wsgi_app)  # type: ignore[method-assign] # as Flask has it
    app.url_map = _map_of(tuple(views))
    app.view_functions = {_endpoint(*route): view for route, view in views.items()}
    app.register_error_handler(ApiError, _error)
    app.register_error_handler(HTTPException, _no_route)
    app.register_error_handler(Exception, _internal_error)
    app.after_request(_drop_rest)
    return app


@functools.cache  # to compile them takes as long as a hundred requests
def _map_of(routes: tuple[tuple[str, str], ...]) -> Map:
    app = flask.Flask(__name__, static_folder=None)
    for method, path in routes:
        app.add_url_rule(path, _endpoint(method, path), methods=[method])
    return app.url_map


def _endpoint(method: str, path: str) -> str:
    return f"{method} {path}"


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
