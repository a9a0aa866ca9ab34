"""What Cloud Build refuses of a build, or would leave undone in silence: one line each.

The shape is checked by Cloud Build's own message; the rest is what that message lets pass.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

from google.cloud.devtools import cloudbuild_v1
from google.protobuf import json_format

from tests.deploy.gcloud_commands import problems_of

#: Set in each build; those of a trigger are empty in a build that a person submits.
_ALWAYS_SET: Final = frozenset(
    {"PROJECT_ID", "PROJECT_NUMBER", "BUILD_ID", "LOCATION", "SERVICE_ACCOUNT_EMAIL"}
)
_NAME: Final = re.compile(r"_[A-Z0-9_]+")
_USED: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LOGS_THAT_AN_ACCOUNT_MAY_WRITE: Final = ("CLOUD_LOGGING_ONLY", "NONE")
_SHELLS: Final = ("bash", "sh")
_AT_ONCE: Final = ["-"]

Build = dict[str, Any]


def problems(build: Build) -> list[str]:
    """Return what is wrong with a build, as it was read from YAML."""
    try:
        json_format.ParseDict(build, cloudbuild_v1.Build.pb(cloudbuild_v1.Build()))
    except json_format.ParseError as error:
        return [f"not a build: {error}"]
    return [
        *_of_order(build),
        *_of_substitutions(build),
        *_of_scripts(build),
        *_of_account(build),
        *_of_timeouts(build),
        *_of_gcloud(build),
    ]


def _of_order(build: Build) -> Iterator[str]:
    known: set[str] = set()
    for number, step in enumerate(build.get("steps", []), start=1):
        name = step.get("id")
        if not name:
            yield f"step {number} has no id"
            continue
        if name in known:
            yield f"two steps have the id {name!r}"
        waits_for = step.get("waitFor")
        if not waits_for:
            yield f"{name} does not say what it waits for: it would wait for all before it"
        for other in [] if waits_for == _AT_ONCE else waits_for or []:
            if other not in known:
                yield f"{name} waits for {other!r}, which is no step before it"
        known.add(name)
    if not known:
        yield "it has no step"


def _of_substitutions(build: Build) -> Iterator[str]:
    declared = build.get("substitutions", {})
    for name in declared:
        if not _NAME.fullmatch(name):
            yield f"the substitution {name!r} is not of _, A-Z and 0-9, with _ at first"
    body = json.dumps({key: value for key, value in build.items() if key != "substitutions"})
    used = {curly or plain for curly, plain in _USED.findall(body.replace("$$", ""))}
    for name in sorted(used - set(declared) - _ALWAYS_SET):
        yield f"${name} is neither declared nor set in each build; for the shell: $${name}"
    for name in sorted(set(declared) - used):
        yield f"the substitution {name} is not used, which Cloud Build refuses"


def _of_scripts(build: Build) -> Iterator[str]:
    """Yield what is put into a script unchanged: its author could choose commands."""
    for step in build["steps"]:
        texts = step.get("args", []) if step.get("entrypoint") in _SHELLS else []
        for text in (*texts, step.get("script", "")):
            for name in re.findall(r"\$\{?(_\w+)", text.replace("$$", "")):
                yield f"{step.get('id')}: ${name} is a part of a script; give it in env"


def _of_account(build: Build) -> Iterator[str]:
    logging = build.get("options", {}).get("logging")
    if "serviceAccount" not in build:
        yield "it runs as no account of its own"
    elif logging not in _LOGS_THAT_AN_ACCOUNT_MAY_WRITE:
        yield "an account of its own needs options.logging: CLOUD_LOGGING_ONLY"


def _of_timeouts(build: Build) -> Iterator[str]:
    """Yield the steps that have more time than the build, which would be cut off in the middle."""
    whole = _seconds(build.get("timeout", "600s"))
    ends: dict[str, float] = {}
    for step in build["steps"]:
        before = [ends.get(name, 0.0) for name in step.get("waitFor", [])]
        ends[step.get("id", "")] = max(before, default=0.0) + _seconds(step.get("timeout", "0s"))
    if (longest := max(ends.values(), default=0.0)) > whole:
        yield f"its steps have {longest:g} s one after the other, and it has {whole:g} s"


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _of_gcloud(build: Build) -> Iterator[str]:
    for step in build["steps"]:
        for call in _gcloud_calls(step):
            if "google-cloud-cli" not in step["name"]:
                yield f"{step['id']} calls gcloud, which its image does not have"
            yield from problems_of(call)


def _gcloud_calls(step: dict[str, Any]) -> Iterator[list[str]]:
    args = step.get("args", [])
    if step.get("entrypoint") == "gcloud":
        yield args
    elif step.get("entrypoint") in _SHELLS:
        for line in args[-1].replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["gcloud"]:
                yield words[1:]
