"""The extras of the distribution: what of each is imported, and which one to install."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import urllib.parse
from collections.abc import Mapping
from typing import Final

from leasehold.errors import MissingExtraError

#: The modules that each extra brings and this package imports itself.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "functions": (
        "functions_framework",
        "flask",
        "werkzeug",
        "gunicorn",
        "google.cloud.tasks_v2",
        "urllib3",
        "cronsim",
    ),
    "serve": ("flask", "werkzeug", "waitress"),
    "deploy": (
        "google.cloud.iam_admin_v1",
        "google.cloud.logging_v2",
        "google.cloud.monitoring_v3",
        "google.cloud.resourcemanager_v3",
        "google.cloud.run_v2",
        "google.cloud.scheduler_v1",
        "google.cloud.secretmanager_v1",
        "packaging",
    ),
    "google": (
        "google.cloud.firestore",
        "google.cloud.storage",
        "google.cloud.tasks_v2",
        "google.pubsub_v1",
    ),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "pydantic-ai": ("pydantic_ai",),
    "openai-agents": ("agents",),
    "adk": ("google.adk",),
    "langgraph": ("langgraph", "langchain"),
}


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Refuse to go on where a module of an extra is not installed; it imports none of them.

    Args:
        extra: a key of EXTRAS.
        what: what needs it, for the message.
        modules: those of the extra that are needed; none: all of them.

    Raises:
        MissingExtraError: the message says what to type.
    """
    for module in modules or EXTRAS[extra]:
        if not _is_installed(module):
            install = _to_install(extra)
            raise MissingExtraError(what=what, module=module, extra=extra, install=install)


def _to_install(extra: str) -> str:
    """Return what pip is given for the extra: from where this Leasehold came, a wheel or a folder.

    By its name alone it would come from an index, from the owner of that name there.
    """
    try:
        said = importlib.metadata.distribution("leasehold").read_text("direct_url.json")  # PEP 610
    except importlib.metadata.PackageNotFoundError:
        said = None
    origin = json.loads(said or "{}")
    address = urllib.parse.urlsplit(origin.get("url", ""))
    came_from = urllib.parse.unquote(address.path) if address.scheme == "file" else "leasehold"
    option = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return option + shlex.quote(f"{came_from}[{extra}]")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor the package that it is in
        return False
