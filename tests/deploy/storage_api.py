"""Cloud Storage's JSON API for buckets and their policies, over HTTP; it has no objects.

The emulator of the other tests keeps objects, but of a bucket neither the access nor the lifecycle
nor the policy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import flask
from werkzeug.serving import WSGIRequestHandler, make_server


class StorageApi:
    """The buckets of the world.

    Attributes:
        buckets: ours, as JSON, by name.
        taken: names that belong to another owner.
        policies: by the bucket, with the etag of the last change.
        writes: each request that changes something.
    """

    def __init__(self, project_number: str) -> None:
        self.project_number = project_number
        self.buckets: dict[str, dict[str, Any]] = {}
        self.taken: set[str] = set()
        self.policies: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self._refuse_policies = 0
        self.app = flask.Flask(__name__)
        self.app.add_url_rule("/storage/v1/b/<name>", view_func=self._get)
        self.app.add_url_rule("/storage/v1/b", view_func=self._insert, methods=["POST"])
        self.app.add_url_rule("/storage/v1/b/<name>/iam", view_func=self._policy)
        self.app.add_url_rule("/storage/v1/b/<name>/iam", view_func=self._set, methods=["PUT"])

    def refuse_next_policy(self) -> None:
        """Answer the next policy as if it had been changed meanwhile."""
        self._refuse_policies += 1

    def _get(self, name: str) -> Any:
        if name in self.taken:
            return _error(403, "you do not have storage.buckets.get access to the bucket.")
        if name not in self.buckets:
            return _error(404, "The specified bucket does not exist.")
        return self.buckets[name]

    def _insert(self) -> Any:
        bucket: dict[str, Any] = flask.request.get_json()
        name = bucket["name"]
        self.writes.append(f"buckets.insert {name}")
        if name in self.taken:
            return _error(409, "The requested bucket name is not available.")
        if name in self.buckets:
            return _error(409, "Your previous request to create the named bucket succeeded.")
        bucket["location"] = bucket.get("location", "US").upper()
        self.buckets[name] = {**bucket, "projectNumber": self.project_number}
        return self.buckets[name]

    def _policy(self, name: str) -> Any:
        if name not in self.buckets:
            return _error(404, "The specified bucket does not exist.")
        return self.policies.get(name, {"etag": "CAE=", "version": 1, "bindings": []})

    def _set(self, name: str) -> Any:
        self.writes.append(f"buckets.setIamPolicy {name}")
        policy: dict[str, Any] = flask.request.get_json()
        self._refuse_policies, refused = 0, self._refuse_policies
        if refused or policy.get("etag") != self._policy(name)["etag"]:
            return _error(412, "At least one of the pre-conditions you specified did not hold.")
        etag = {"CAE=": "CAI="}.get(policy["etag"], "CAM=")
        self.policies[name] = {**policy, "etag": etag}
        return self.policies[name]

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve it; lend its address, for STORAGE_EMULATOR_HOST."""
        server = make_server("127.0.0.1", 0, self.app, threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None: ...


def _error(code: int, message: str) -> tuple[Mapping[str, Any], int]:
    return {"error": {"code": code, "message": message}}, code
