"""Whether the database can be brought back: what is deleted by mistake is gone otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding, Kind
from leasehold.live.clients import ONE_TRY


def backups(deployment: Deployment) -> Iterator[Finding]:
    """Yield a warning where nobody backs the database up, or keeps what was overwritten."""
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - with the client

    address = deployment.setting("LEASEHOLD_STORE")
    if not address.startswith("firestore://"):
        return
    project, database = address.removeprefix("firestore://").split("/")
    name = f"projects/{project}/databases/{database}"
    client = deployment.clients.firestore_admin
    try:
        kept = client.get_database({"name": name}, **ONE_TRY).point_in_time_recovery_enablement
        schedules = client.list_backup_schedules({"parent": name}, **ONE_TRY).backup_schedules
    except NotFound:  # the look at its indexes says so
        return
    if not schedules:
        message = f"Nobody backs up database {database}: what is deleted by mistake is gone."
        yield Finding("no_backups", message, deployment.apply, kind=Kind.WARNING)
    if kept.name != "POINT_IN_TIME_RECOVERY_ENABLED":
        message = (
            f"Database {database} keeps no earlier versions: after an hour there is no way back "
            "but a backup, which is up to a day old."
        )
        update = f"gcloud firestore databases update --database='{database}' --project={project}"
        repair = f"{update} --enable-pitr"
        yield Finding("no_earlier_versions", message, repair, kind=Kind.WARNING)
