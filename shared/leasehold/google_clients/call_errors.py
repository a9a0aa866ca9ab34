"""Errors of Google's APIs: one line each, and the command that helps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

from leasehold.domain.printable import one_line
from leasehold.frozen import dataclass

_MAX_WORDS_CHARS: Final = 300

#: Who may do that, by how the permission begins; the first that fits.
_ROLES: Final = (
    ("cloudtasks.", "roles/cloudtasks.queueAdmin"),
    ("pubsub.topics.setIamPolicy", "roles/pubsub.admin"),
    ("pubsub.topics.getIamPolicy", "roles/pubsub.admin"),
    ("pubsub.subscriptions.setIamPolicy", "roles/pubsub.admin"),
    ("pubsub.subscriptions.getIamPolicy", "roles/pubsub.admin"),
    ("pubsub.", "roles/pubsub.editor"),
    ("cloudscheduler.", "roles/cloudscheduler.admin"),
    ("datastore.indexes.", "roles/datastore.indexAdmin"),
    ("datastore.schemas.", "roles/datastore.indexAdmin"),  # as they are called now
    ("datastore.", "roles/datastore.owner"),
    ("storage.", "roles/storage.admin"),
    ("iam.serviceAccounts.actAs", "roles/iam.serviceAccountUser"),
    ("iam.", "roles/iam.serviceAccountAdmin"),
    ("resourcemanager.projects.get", "roles/browser"),
    ("resourcemanager.", "roles/resourcemanager.projectIamAdmin"),
    ("secretmanager.", "roles/secretmanager.admin"),
    ("logging.", "roles/logging.configWriter"),
    ("monitoring.alertPolicies.", "roles/monitoring.alertPolicyEditor"),
    ("monitoring.notificationChannels.", "roles/monitoring.notificationChannelEditor"),
    ("monitoring.", "roles/monitoring.editor"),
    ("run.services.setIamPolicy", "roles/run.admin"),
    ("run.services.getIamPolicy", "roles/run.admin"),
    ("run.", "roles/run.viewer"),
)
_PERMISSION: Final = re.compile(r"[\"'`]?\b([a-z]+\.[a-zA-Z]+\.[a-zA-Z]+)[\"'`]? (?:denied|access)")
_LACKS: Final = re.compile(r"permission[^\"'`]{0,20}[\"'`]([a-z]+\.[a-zA-Z]+\.[a-zA-Z]+)[\"'`]")
_REQUEST: Final = re.compile(r"^[A-Z]+ https?://\S+: ")  # before each message over REST
#: An account of Google's own, of a service that was not used yet.
_AGENT: Final = re.compile(r"service-\d+@gcp-sa-([a-z]+)\.iam\.gserviceaccount\.com does not exist")
#: What an organization forbids; not each service names it in its sentence.
_CONSTRAINT: Final = re.compile(r"constraints/([A-Za-z]+(?:\.[A-Za-z]+)+)")
_MEMBERS: Final = "iam.allowedPolicyMemberDomains"
_NOT_PERMITTED: Final = "do not belong to a permitted customer"
#: What can be done about a constraint, beside having it changed.
_WAYS: Final = {
    _MEMBERS: "name --caller and --worker of its own domains",
    "iam.managed.allowedPolicyMembers": "name --caller and --worker that it allows",
    "gcp.resourceLocations": "give a --region that it allows",
    "iam.disableServiceAccountCreation": "have its administrator create the account",
}
_API: Final = re.compile(r"apis/(?:api|library)/([a-z0-9.-]+\.googleapis\.com)")


@dataclass(frozen=True, slots=True)
class Explanation:
    """An error for people.

    Args:
        problem: what is wrong, in one line without a full stop.
        repair: a command to type about it; empty: there is none.
    """

    problem: str
    repair: str = ""

    def __str__(self) -> str:
        return f"{self.problem}. Type: {self.repair}" if self.repair else f"{self.problem}."


def explain(error: BaseException, project: str) -> Explanation:
    """Return what an error of a Google client means in a project."""
    from google.api_core import exceptions as google  # noqa: PLC0415 - `--help` answers without
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    error = getattr(error, "cause", None) or error  # a RetryError has what the last try met
    if isinstance(error, GoogleAuthError | google.Unauthenticated):
        return _no_credentials(error)
    for found in _known(error, project):
        return found
    if isinstance(error, google.Forbidden):
        return Explanation(f"it is not allowed in project {project}: {_message(error)}")
    if may_pass(error):
        return Explanation(f"it does not answer: {_message(error)}")
    return Explanation(f"{type(error).__name__}: {_message(error)}")


def may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed a little later."""
    from google.api_core import exceptions as google  # noqa: PLC0415 - as above
    from google.auth.exceptions import TransportError  # noqa: PLC0415

    if isinstance(error, google.MethodNotImplemented):
        return False
    if isinstance(error, google.BadRequest):  # an account so new that not all of Google knows it
        return "does not exist" in str(error) and "account" in str(error)
    passing = (
        google.ServerError,
        google.TooManyRequests,
        google.Aborted,
        google.RetryError,
        TransportError,
        ConnectionError,
        TimeoutError,
    )
    return isinstance(error, passing) or _is_of_requests(error)


def exists_already(error: BaseException) -> bool:
    """Return whether a create was refused because another caller was first."""
    from google.api_core.exceptions import Aborted, Conflict  # noqa: PLC0415 - as above

    return isinstance(error, Conflict) and not isinstance(error, Aborted)


def _known(error: BaseException, project: str) -> Iterator[Explanation]:
    """Yield what is known about an error of an API."""
    facts: Any = getattr(error, "metadata", None) or {}
    reason, message = getattr(error, "reason", None), str(getattr(error, "message", "") or error)
    disabled = _API.search(message) if "it is disabled" in message else None
    if reason == "SERVICE_DISABLED" or disabled:
        service = facts.get("service") or (disabled[1] if disabled else "")
        if service:
            yield _disabled(service, project)
    if reason in {"BILLING_DISABLED", "UREQ_PROJECT_BILLING_NOT_FOUND"}:
        command = f"gcloud billing projects link {project} --billing-account=ACCOUNT"
        yield Explanation(f"project {project} has no billing account", command)
    if constraint := _constraint(error, message):
        yield _against_policy(constraint, error, project)
    if permission := _permission(error, facts, message):
        yield _missing_permission(permission, project)
    if agent := _AGENT.search(message):
        command = "gcloud beta services identity create --project={} --service={}.googleapis.com"
        problem = f"Google has no account of its own for {agent[1]} in project {project} yet"
        yield Explanation(problem, command.format(project, agent[1]))
    if "is not a valid location" in message:
        yield Explanation(f"the region does not have it: {one_line(message, _MAX_WORDS_CHARS)}")
    if "existed too recently" in message:
        yield Explanation(
            "one of that name was deleted less than 3 days ago, and its name is not given back any "
            "sooner; apply again then, or give the steps another queue (`queue=` of their entry)"
        )


def _no_credentials(error: BaseException) -> Explanation:
    from google.auth.exceptions import DefaultCredentialsError  # noqa: PLC0415 - as above

    login = "gcloud auth application-default login"
    if isinstance(error, DefaultCredentialsError):
        return Explanation("there are no credentials of Google Cloud here", login)
    return Explanation(f"the credentials are not accepted: {_message(error)}", login)


def _disabled(service: str, project: str) -> Explanation:
    command = f"gcloud services enable {shlex.quote(service)} --project={project}"
    return Explanation(f"the API {service} is not enabled in project {project}", command)


def _constraint(error: BaseException, message: str) -> str:
    """Return the policy of an organization that refused a call, or nothing."""
    found = _CONSTRAINT.search(f"{message} {getattr(error, 'details', '')}")
    return found[1] if found else _MEMBERS if _NOT_PERMITTED in message else ""


def _against_policy(constraint: str, error: BaseException, project: str) -> Explanation:
    way = _WAYS.get(constraint, "do without it")
    problem = (
        f"the organization's policy {constraint} forbids it; {way}, or have its administrator "
        f"allow it for project {project} (docs/deploy.md): {_message(error)}"
    )
    command = f"gcloud org-policies describe {constraint} --project={project} --effective"
    return Explanation(problem, command)


def _permission(error: BaseException, facts: Any, message: str) -> str:
    from google.api_core.exceptions import Forbidden  # noqa: PLC0415 - as above

    if not isinstance(error, Forbidden):
        return ""
    found = _PERMISSION.search(message) or _LACKS.search(message)
    return str(facts.get("permission") or (found[1] if found else ""))


def _missing_permission(permission: str, project: str) -> Explanation:
    problem = f"the permission {permission} is missing in project {project}"
    role = next((role for start, role in _ROLES if permission.startswith(start)), "")
    if not role:
        return Explanation(problem)
    command = f"gcloud projects add-iam-policy-binding {project} --member=MEMBER --role={role}"
    return Explanation(f"{problem}; {role} has it", command)


def _message(error: BaseException) -> str:
    """Return what an error says, in one line without a full stop."""
    text = str(getattr(error, "message", "") or error) or type(error).__name__
    return one_line(_REQUEST.sub("", text), _MAX_WORDS_CHARS).rstrip(".")


def _is_of_requests(error: BaseException) -> bool:
    """Return whether no connection was had over HTTP: the REST clients raise what requests does."""
    try:
        from requests.exceptions import ConnectionError as NoConnection  # noqa: PLC0415
        from requests.exceptions import Timeout  # noqa: PLC0415
    except ImportError:
        return False
    return isinstance(error, NoConnection | Timeout)
