"""`make audit`: whether a package that is pinned in constraints.txt has a known vulnerability.

One request to OSV, the database in which the advisories of PyPI and of GitHub are. Where it cannot
be asked, that is said in one line, and is no failure unless LEASEHOLD_REQUIRE_AUDIT=1.
A deploy audits what it deploys, LEASEHOLD_AUDIT=runtime: a tool of the tests that has an advisory
does not stop the deploy of a repair.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pydantic_core

from leasehold.deploy.bundle.requirements import HASHES
from leasehold.domain.printable import one_line

#: https://google.github.io/osv.dev/post-v1-querybatch/
OSV: Final = "https://api.osv.dev/v1/querybatch"
CONSTRAINTS: Final = Path(__file__).parents[1] / "constraints.txt"
REQUIRED: Final = "LEASEHOLD_REQUIRE_AUDIT"
#: `runtime`: only what a function may need, as `leasehold deploy hashes` has it.
SCOPE: Final = "LEASEHOLD_AUDIT"
RUNTIME: Final = CONSTRAINTS.with_name(HASHES)

#: Advisories that do not concern this bundle, each with the reason.
ACCEPTED: Final[Mapping[str, str]] = {}

_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!-]+)")
_LONGEST_LINE: Final = 200
_PATIENCE_S: Final = 4.0
_MOST_BYTES: Final = 10 * 1024 * 1024


class AuditError(Exception):
    """The database could not be asked."""


def pins(text: str) -> Iterator[tuple[str, str]]:
    """Yield each package and its version.

    Raises:
        ValueError: a line is none, so something would not be audited.
    """
    for line in text.splitlines():
        pinned = line.partition("#")[0].partition(" --hash=")[0].strip()
        if not pinned:
            continue
        found = _PIN.fullmatch(pinned)
        if found is None:
            raise ValueError(f"{line!r} pins no version")
        yield found[1], found[2]


def vulnerabilities(
    pinned: Sequence[tuple[str, str]], url: str = OSV
) -> Iterator[tuple[str, str, str]]:
    """Yield package, version and the id of an advisory, for each that is known.

    Raises:
        AuditError: there is no answer in time, or it is not one for these packages; or, after all
            that is known, it is not whole.
    """
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        for name, version in pinned
    ]
    results = _ask(url, {"queries": queries}).get("results")
    if not isinstance(results, list) or len(results) != len(pinned):
        raise AuditError("it answered for other packages")
    for (name, version), result in zip(pinned, results, strict=True):
        yield from ((name, version, advisory) for advisory in _advisories(result))
    if not all(isinstance(result, dict) and _is_whole(result) for result in results):
        raise AuditError("it did not say all of it")


def _advisories(result: Any) -> Iterator[str]:
    """Yield the ids of the known advisories of a package; one without an id counts too."""
    known = result.get("vulns") if isinstance(result, dict) else None
    for one in known if isinstance(known, list) else [known] if known else []:
        yield one_line(str(one.get("id") if isinstance(one, dict) else one), _LONGEST_LINE)


def _is_whole(result: Mapping[str, Any]) -> bool:
    """Return whether there is no further page, or a first one that fails the audit anyway."""
    return bool(result.get("vulns")) or not result.get("next_page_token")


def _ask(url: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer; a thread asks, because no timeout bounds the look-up of a name."""
    answers: list[Any] = []
    asking = threading.Thread(target=_post, args=(url, question, answers), daemon=True)
    asking.start()
    asking.join(_PATIENCE_S)
    if not answers:
        raise AuditError(f"no answer within {_PATIENCE_S:.0f} s")
    (answer,) = answers
    if isinstance(answer, Exception):
        raise AuditError(str(answer) or type(answer).__name__)
    if not isinstance(answer, dict):
        raise AuditError("it answered something else")
    return answer


def _post(url: str, question: Mapping[str, Any], answers: list[Any]) -> None:
    data, headers = json.dumps(question).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - OSV's address
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310 - as above
            answers.append(pydantic_core.from_json(answer.read(_MOST_BYTES)))
    except (OSError, ValueError, HTTPException) as error:
        answers.append(error)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit", description=__doc__)
    file = RUNTIME if environ.get(SCOPE) == "runtime" else CONSTRAINTS
    parser.add_argument("--constraints", type=Path, default=file, help="what is audited")
    parser.add_argument("--url", default=OSV, help="the database")
    options = parser.parse_args(arguments)
    found: set[tuple[str, str, str]] = set()
    fails = False
    try:
        pinned = list(pins(options.constraints.read_text()))
        for each in vulnerabilities(pinned, options.url):
            found.add(each)
    except AuditError as error:
        fails = environ.get(REQUIRED) == "1"
        way = f"{REQUIRED}=1 asks for it" if fails else "it is done where there is a network"
        why = one_line(str(error), _LONGEST_LINE)
        print(f"audit: not done, {options.url} cannot be asked: {why}; {way}.", file=sys.stderr)
        if not found:
            return int(fails)
    except (OSError, ValueError) as error:
        print(f"audit: {options.constraints} cannot be read: {error}", file=sys.stderr)
        return 2
    known = [each for each in sorted(found) if each[-1] not in ACCEPTED]
    for name, version, advisory in known:
        print(f"audit: {name} {version} has https://osv.dev/vulnerability/{advisory}")
    print(f"audit: {len(pinned)} packages, {len(known)} known vulnerabilities.")
    return int(bool(known) or fails)


if __name__ == "__main__":
    sys.exit(main())
