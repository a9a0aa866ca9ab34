"""One installation of the bundle in a project of Google Cloud: where it is, and all its names."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.deploy.tables import DEFAULTS, Tables
from leasehold.frozen import dataclass
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the bundle is deployed to. Every name of it is made here.

    Args:
        project: the id of the project.
        project_number: its number, which is in the addresses of its services.
        region: where functions, queues, jobs and the bucket are.
        database: the Firestore database.
        database_location: a region or multi-region of Firestore; empty: `region`.
        bucket: of the artifacts; empty: `PROJECT-leasehold`.
        topic: of the announcements that are due.
        catalog: what the bundle runs.
        retention_days: how long ended runs are kept; None: forever.
        ledger_days: how long the ledger keeps what it knows of an ended run; None: forever.
        backup_days: how long a daily backup of the database is kept; 0: there is none, and no
            point-in-time recovery.
        alert_email: the address that alerts are sent to; empty: the console alone shows them.
        callers: members that may call the runs API: `user:…`, `group:…`, `serviceAccount:…`.
        workers: members that may call `manage_lease`.
        tables: what is deployed.
    """

    project: str
    project_number: str
    region: str
    database: str = "(default)"
    bucket: str = ""
    topic: str = "leasehold-announcements"
    catalog: str = "pipelines.catalog"
    retention_days: int | None = None
    ledger_days: int | None = None
    alert_email: str = ""
    callers: Sequence[str] = ()
    workers: Sequence[str] = ()
    database_location: str = ""
    backup_days: int = 14
    tables: Tables = DEFAULTS

    @property
    def functions(self) -> FunctionTable:
        """The functions, as the tables have them."""
        return self.tables.functions

    @property
    def bucket_name(self) -> str:
        """The bucket of the artifacts; its name is unique in the world."""
        return self.bucket or f"{self.project}-leasehold"

    @property
    def location(self) -> str:
        """The full name of the region, as Google's APIs have it."""
        return f"projects/{self.project}/locations/{self.region}"

    @property
    def database_name(self) -> str:
        """The full name of the database."""
        return f"projects/{self.project}/databases/{self.database}"

    @property
    def database_place(self) -> str:
        """Where the database is, which is for good once it is created."""
        return self.database_location or self.region

    @property
    def topic_name(self) -> str:
        """The full name of the topic of announcements."""
        return f"projects/{self.project}/topics/{self.topic}"

    @property
    def dead_topic_name(self) -> str:
        """The full name of the topic of the messages that were delivered in vain."""
        return f"{self.topic_name}-dead"

    def email_of(self, account: str) -> str:
        """Return the email of a service account of the project."""
        return f"{account}@{self.project}.iam.gserviceaccount.com"

    @property
    def task_account(self) -> str:
        """The id of the account that tasks sign in as."""
        return Trigger.TASKS.account

    @property
    def schedule_account(self) -> str:
        """The id of the account that Cloud Scheduler signs in as."""
        return Trigger.SCHEDULE.account

    @property
    def event_account(self) -> str:
        """The id of the account that Pub/Sub signs in as."""
        return Trigger.EVENTS.account

    def url_of(self, function: FunctionEntry) -> str:
        """Return the address of a function, which is known before it is deployed.

        https://cloud.google.com/run/docs/triggering/https-request#deterministic
        """
        return f"https://{function.service}-{self.project_number}.{self.region}.run.app"
