"""The accounts of a deploy: what a build runs as, what the gate does, and what makes images.

`docs/deploy.md` shows these tables, and gives the roles. What a build may not do is left out of
them: it makes no account, and gives no one a role in the whole project.
"""

from __future__ import annotations

from typing import Final

from leasehold.registry.functions import ACCOUNT_PREFIX, Trigger

#: The account that `cloudbuild.yaml` runs as.
DEPLOYER: Final = f"{ACCOUNT_PREFIX}deployer"
#: The account that the images of functions are built as; packages of others run their code then.
BUILDER: Final = f"{ACCOUNT_PREFIX}builder"
#: The account that the gate runs as, `cloudbuild.gate.yaml`: all tests, and the tools of others.
GATE: Final = f"{ACCOUNT_PREFIX}gate"

#: Roles of the deployer in the project, and what it needs each for.
DEPLOYER_ROLES: Final[tuple[tuple[str, str], ...]] = (
    ("roles/logging.logWriter", "the log of the build"),
    (
        "roles/storage.objectViewer",
        "the source that `gcloud builds submit` uploads; what live runs are given",
    ),
    ("roles/cloudbuild.builds.editor", "starts the gate, as its own build"),
    ("roles/serviceusage.serviceUsageConsumer", "uploads the source of the gate"),
    ("roles/cloudfunctions.developer", "deploys functions"),
    ("roles/run.admin", "says who may call them, and calls the runs API in the smoke test"),
    ("roles/cloudtasks.queueAdmin", "the queue of a step type that is new"),
    ("roles/cloudscheduler.admin", "the job of the sweep"),
    ("roles/pubsub.admin", "topics; what Eventarc's subscription lacks, and who may publish"),
    ("roles/datastore.indexAdmin", "indexes, exemptions and retention of Firestore"),
    ("roles/logging.configWriter", "metrics that are counted from log lines"),
    ("roles/monitoring.alertPolicyEditor", "alert policies"),
    ("roles/monitoring.notificationChannelEditor", "whom alerts are sent to"),
    (
        "roles/datastore.viewer",
        "asks whether the database is there; reads the runs that have not ended",
    ),
    ("roles/datastore.backupSchedulesViewer", "asks whether the database is backed up"),
    ("roles/iam.serviceAccountViewer", "asks which accounts are there"),
    ("roles/iam.securityReviewer", "asks who may do what"),
    ("roles/secretmanager.viewer", "asks which secrets have a value; it reads none"),
    ("roles/storage.bucketViewer", "asks how the bucket is set up"),
)

#: Roles of the builder in the project, and what it needs each for.
BUILDER_ROLES: Final[tuple[tuple[str, str], ...]] = (
    ("roles/logging.logWriter", "the log of the build"),
    ("roles/artifactregistry.writer", "stores the image"),
    ("roles/storage.objectViewer", "reads the bundle; a condition keeps it from the artifacts"),
)

#: Roles of the gate in the project, and what it needs each for; it reads its source besides.
GATE_ROLES: Final[tuple[tuple[str, str], ...]] = (
    ("roles/logging.logWriter", "the log of the gate"),
)

#: Accounts that the deployer may let others run as, beside those of the functions.
ACTED_AS: Final[tuple[str, ...]] = (
    BUILDER,
    GATE,
    Trigger.EVENTS.account,  # the trigger of deliver-notification
    Trigger.SCHEDULE.account,  # the job of the sweep
)

#: What the project needs before anything is deployed.
APIS: Final[tuple[str, ...]] = (
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "cloudtasks.googleapis.com",
    "eventarc.googleapis.com",
    "firestore.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "storage.googleapis.com",
)
