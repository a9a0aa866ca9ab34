"""A new process of one function, as the framework starts it: it answers, and says what it loaded.

`python -m tests.api.functions.cold_requests NAME REQUESTS`: REQUESTS is JSON,
`[[method, path, body]]`.
Prints one line of JSON: `[[status, body, modules]]`, first `[0, None, modules]` after the import.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import functions_framework


def main(name: str, requests: str) -> None:
    """Answer the requests, and print what came of each."""
    client = functions_framework.create_app(
        name, f"shared/leasehold/functions/{name}.py"
    ).test_client()
    told: list[tuple[int, Any, list[str]]] = [(0, None, sorted(sys.modules))]
    for method, path, body in json.loads(requests):
        answer = client.open(path, method=method, json=body)
        told.append((answer.status_code, answer.get_json(silent=True), sorted(sys.modules)))
    print(json.dumps(told))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
