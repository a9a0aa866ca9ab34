"""An error of Google's APIs becomes one line, with what to type."""

from __future__ import annotations

import shlex

import pytest
from google.api_core import exceptions as google
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from google.rpc.error_details_pb2 import ErrorInfo

from leasehold.google_clients.call_errors import exists_already, explain, may_pass
from tests.deploy.gcloud_commands import need_gcloud, problems_of

DISABLED = (
    "Cloud Tasks API has not been used in project 123 before or it is disabled. Enable it by "
    "visiting https://console.developers.google.com/apis/api/cloudtasks.googleapis.com/overview"
    "?project=123 then retry."
)


def test_an_api_that_is_disabled_is_known_by_its_sentence_too() -> None:
    """Not each service sends the details that programs read."""
    told = explain(google.PermissionDenied(DISABLED), "shop-prod")

    assert told.problem == "the API cloudtasks.googleapis.com is not enabled in project shop-prod"
    assert told.repair == "gcloud services enable cloudtasks.googleapis.com --project=shop-prod"


@pytest.mark.parametrize(
    ("message", "permission", "role"),
    [
        (
            'The principal lacks IAM permission "cloudtasks.queues.create" for the resource "x".',
            "cloudtasks.queues.create",
            "roles/cloudtasks.queueAdmin",
        ),
        (
            "Permission 'iam.serviceAccounts.create' denied on resource (or it may not exist).",
            "iam.serviceAccounts.create",
            "roles/iam.serviceAccountAdmin",
        ),
        (
            "a@b.example does not have storage.buckets.create access to the project.",
            "storage.buckets.create",
            "roles/storage.admin",
        ),
        (
            "Missing or insufficient permission 'datastore.schemas.create'.",
            "datastore.schemas.create",
            "roles/datastore.indexAdmin",
        ),
        (  # an editor may create a topic, and not say who may publish to it
            "User not authorized: permission 'pubsub.topics.setIamPolicy' denied.",
            "pubsub.topics.setIamPolicy",
            "roles/pubsub.admin",
        ),
    ],
)
def test_a_permission_is_found_in_the_sentences_of_the_services(
    message: str, permission: str, role: str
) -> None:
    told = explain(google.Forbidden(message), "shop-prod")

    assert (
        told.problem
        == f"the permission {permission} is missing in project shop-prod; {role} has it"
    )
    assert told.repair.endswith(f"--member=MEMBER --role={role}")


@pytest.mark.parametrize(
    ("error", "constraint", "way"),
    [
        (  # the constraint stands in the details at most
            google.FailedPrecondition(
                "One or more users named in the policy do not belong to a permitted customer."
            ),
            "iam.allowedPolicyMemberDomains",
            "name --caller and --worker of its own domains",
        ),
        (
            google.BadRequest(
                "One or more users named in the policy do not belong to a permitted customer.",
                details=["type: constraints/iam.managed.allowedPolicyMembers"],
            ),
            "iam.managed.allowedPolicyMembers",
            "name --caller and --worker that it allows",
        ),
        (
            google.FailedPrecondition(
                "Location us-central1 violates constraint constraints/gcp.resourceLocations on "
                "the resource projects/shop-prod."
            ),
            "gcp.resourceLocations",
            "give a --region that it allows",
        ),
        (
            google.PermissionDenied(
                "Constraint constraints/run.allowedIngress violated for projects/shop-prod "
                "attempting to update a service with ingress set to all."
            ),
            "run.allowedIngress",
            "do without it",
        ),
    ],
)
def test_a_policy_of_the_organization_is_named_with_what_to_do(
    error: Exception, constraint: str, way: str
) -> None:
    told = explain(error, "shop-prod")

    assert told.problem.startswith(f"the organization's policy {constraint} forbids it; {way}, or ")
    assert told.repair == (
        f"gcloud org-policies describe {constraint} --project=shop-prod --effective"
    )
    need_gcloud()
    assert list(problems_of(shlex.split(told.repair)[1:])) == []


def test_an_unknown_refusal_is_reported_as_it_is() -> None:
    told = explain(google.PermissionDenied("The caller does not have permission"), "shop-prod")

    assert (
        str(told) == "it is not allowed in project shop-prod: The caller does not have permission."
    )


def test_credentials_that_are_missing_or_over_are_got_by_logging_in() -> None:
    missing = explain(DefaultCredentialsError("where?"), "p")
    over = explain(RefreshError("Reauthentication is needed."), "p")

    assert missing.repair == over.repair == "gcloud auth application-default login"
    assert over.problem == "the credentials are not accepted: Reauthentication is needed"


def test_what_a_stranger_wrote_into_an_error_cannot_steer_a_terminal() -> None:
    told = explain(google.BadRequest("\x1b[2Jbad\nname " + "x" * 1000), "p")

    assert told.problem.isprintable()
    assert len(told.problem) < 400


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (google.ServiceUnavailable("later"), True),
        (google.DeadlineExceeded("too slow"), True),
        (google.TooManyRequests("quota"), True),
        (google.Aborted("another etag"), True),
        (ConnectionResetError(), True),
        (google.MethodNotImplemented("never"), False),
        (google.PermissionDenied("no"), False),
        (google.InvalidArgument("no"), False),
        (KeyError("a mistake of ours"), False),
    ],
)
def test_what_may_pass_is_tried_again(error: Exception, *, passes: bool) -> None:
    assert may_pass(error) is passes


def test_a_change_at_the_same_time_is_not_taken_for_a_create_of_another() -> None:
    """Google's client has both as conflicts; after the one nothing may be there."""
    assert exists_already(google.AlreadyExists("queue"))
    assert exists_already(google.Conflict("bucket"))
    assert not exists_already(google.Aborted("another etag"))


def test_an_api_that_a_stranger_names_is_safe_in_a_shell() -> None:
    named = google.PermissionDenied(DISABLED, error_info=None)
    named._error_info = ErrorInfo(  # noqa: SLF001 - as the client reads it out of an answer
        reason="SERVICE_DISABLED", metadata={"service": "x; reboot $(x)"}
    )

    assert "x; reboot $(x)" in shlex.split(explain(named, "shop-prod").repair)
