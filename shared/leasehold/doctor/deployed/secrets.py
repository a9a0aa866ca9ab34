"""The secrets of the channels: each variable of one is a secret with a version."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.live.clients import ONE_TRY


def secrets(deployment: Deployment) -> Iterator[Finding]:
    """Yield which secrets are missing, or have no version that can be read."""
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - with the client

    for name in deployment.setup.catalog.channel_variables:
        asked = {
            "parent": f"projects/{deployment.project}/secrets/{name}",
            "filter": "state:ENABLED",
            "page_size": 1,
        }
        try:
            versions = iter(deployment.clients.secrets.list_secret_versions(asked, **ONE_TRY))
            problem = "" if next(versions, None) else "has no version that is enabled"
        except NotFound:
            problem = "does not exist"
        if problem:
            message = f"Secret {name} {problem}: deliver-notification cannot be deployed with it."
            flags = f"--data-file=- --project={deployment.project}"
            repair = f'printf %s "${name}" | gcloud secrets versions add {name} {flags}'
            yield Finding("secret_missing", message, repair)
