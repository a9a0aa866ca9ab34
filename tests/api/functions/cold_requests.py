"""New processes of functions, as the framework starts them: they answer, and say what they loaded.

`python -m tests.api.functions.cold_requests` reads lines of JSON, `[name, [[method, path, body]]]`,
and forks a process for each: all that is imported before is what each function begins with.
The base of all clients of Google is imported before, and what is below that of Firestore.
A process prints one line of JSON: `[[status, body, modules]]`, first `[0, None, modules]` after the
import. One that fails prints its traceback, and `null` stands for its line.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from typing import Any

import functions_framework
import google.api_core.gapic_v1
import google.cloud.firestore_v1  # noqa: F401 - all functions need both; no test looks for them

import leasehold.web.engine_provider  # noqa: F401 - each function imports it


def main() -> None:
    """Have a process answer each line of requests."""
    forking = multiprocessing.get_context("fork")
    for line in sys.stdin:
        process = forking.Process(target=answer, args=json.loads(line))
        process.start()
        process.join()
        if process.exitcode:
            print("null", flush=True)  # noqa: T201 - as below


def answer(name: str, requests: list[tuple[str, str, Any]]) -> None:
    """Answer the requests, and print what came of each."""
    client = functions_framework.create_app(
        name, f"shared/leasehold/functions/{name}.py"
    ).test_client()
    told: list[tuple[int, Any, list[str]]] = [(0, None, sorted(sys.modules))]
    for method, path, body in requests:
        got = client.open(path, method=method, json=body)
        told.append((got.status_code, got.get_json(silent=True), sorted(sys.modules)))
    print(json.dumps(told), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
