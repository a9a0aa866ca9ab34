"""The official clients of Google's APIs, each made when it is first used.

`LEASEHOLD_GOOGLE_EMULATOR=HOST:PORT` is a local gRPC server in place of all of them; nothing is
authenticated there. Cloud Tasks has `CLOUD_TASKS_EMULATOR_URL`, Cloud Storage, which speaks HTTP,
`STORAGE_EMULATOR_HOST`, and Pub/Sub `PUBSUB_EMULATOR_HOST`, as everywhere; each counts before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from leasehold.errors import SettingError
from leasehold.registry.extras import require_extra

if TYPE_CHECKING:  # each takes a while to import, and few calls need them all
    from google.cloud.cloudquotas_v1 import CloudQuotasClient
    from google.cloud.firestore_admin_v1 import FirestoreAdminClient
    from google.cloud.iam_admin_v1 import IAMClient
    from google.cloud.logging_v2.services.metrics_service_v2 import MetricsServiceV2Client
    from google.cloud.monitoring_v3 import (
        AlertPolicyServiceClient,
        NotificationChannelServiceClient,
    )
    from google.cloud.resourcemanager_v3 import ProjectsClient
    from google.cloud.run_v2 import ServicesClient
    from google.cloud.scheduler_v1 import CloudSchedulerClient
    from google.cloud.secretmanager_v1 import SecretManagerServiceClient
    from google.cloud.storage import Client as StorageClient
    from google.cloud.tasks_v2 import CloudTasksClient
    from google.pubsub_v1 import PublisherClient, SubscriberClient

_Client = TypeVar("_Client")

#: A gRPC server in place of Google's.
EMULATOR: Final = "LEASEHOLD_GOOGLE_EMULATOR"
_PUBSUB_EMULATOR: Final = "PUBSUB_EMULATOR_HOST"
_TASKS_EMULATOR: Final = "CLOUD_TASKS_EMULATOR_URL"
_STORAGE_EMULATOR: Final = "STORAGE_EMULATOR_HOST"

#: How the address of each that is called here begins; that of Cloud Tasks is a setting.
_BEGINS: Final = {EMULATOR: "", _PUBSUB_EMULATOR: "", _STORAGE_EMULATOR: "http://"}
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]{1,253}):\d{1,5}/?")

#: Keywords of each call: tried once, for so many seconds. Who calls repeats what may pass.
ONE_TRY: Final[Mapping[str, Any]] = {"retry": None, "timeout": 20.0}


@dataclass
class GoogleClients:
    """The clients of one project.

    Args:
        project: its id.
        environ: says where the emulators are, if there are any.

    Raises:
        MissingExtraError: the extra `deploy` or `google` is not installed.
        SettingError: the variable of an emulator is no address: each call would wait in vain.
    """

    project: str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def __post_init__(self) -> None:
        require_extra("google", "what is deployed")
        require_extra("deploy", "what is deployed")
        for name, begins in _BEGINS.items():
            _check_address(name, self.environ.get(name) or "", begins)

    @property
    def has_emulator(self) -> bool:
        """Whether a service is played on this machine: then the others may be out of reach."""
        names = (EMULATOR, _PUBSUB_EMULATOR, _TASKS_EMULATOR, _STORAGE_EMULATOR)
        return any(self.environ.get(name) for name in names)

    @cached_property
    def tasks(self) -> CloudTasksClient:
        """Of Cloud Tasks, over REST where CLOUD_TASKS_EMULATOR_URL is set."""
        from leasehold.adapters.cloud_tasks import make_client  # noqa: PLC0415 - lazy, see above

        return make_client(self.environ.get(_TASKS_EMULATOR) or None)

    @cached_property
    def scheduler(self) -> CloudSchedulerClient:
        """Of Cloud Scheduler."""
        from google.cloud.scheduler_v1 import CloudSchedulerClient  # noqa: PLC0415

        return self._made(CloudSchedulerClient)

    @cached_property
    def publisher(self) -> PublisherClient:
        """Of the topics of Pub/Sub."""
        from google.pubsub_v1 import PublisherClient  # noqa: PLC0415

        return self._made(PublisherClient, _PUBSUB_EMULATOR)

    @cached_property
    def subscriber(self) -> SubscriberClient:
        """Of the subscriptions of Pub/Sub."""
        from google.pubsub_v1 import SubscriberClient  # noqa: PLC0415

        return self._made(SubscriberClient, _PUBSUB_EMULATOR)

    @cached_property
    def firestore_admin(self) -> FirestoreAdminClient:
        """Of databases, indexes and fields of Firestore."""
        from google.cloud.firestore_admin_v1 import FirestoreAdminClient  # noqa: PLC0415

        return self._made(FirestoreAdminClient)

    @cached_property
    def services(self) -> ServicesClient:
        """Of the services of Cloud Run: a function is one."""
        from google.cloud.run_v2 import ServicesClient  # noqa: PLC0415

        return self._made(ServicesClient)

    @cached_property
    def quotas(self) -> CloudQuotasClient:
        """Of Cloud Quotas: how much a project may have."""
        from google.cloud.cloudquotas_v1 import CloudQuotasClient  # noqa: PLC0415

        return self._made(CloudQuotasClient)

    @cached_property
    def projects(self) -> ProjectsClient:
        """Of projects: the number, and who may do what in all of one."""
        from google.cloud.resourcemanager_v3 import ProjectsClient  # noqa: PLC0415

        return self._made(ProjectsClient)

    @cached_property
    def accounts(self) -> IAMClient:
        """Of service accounts."""
        from google.cloud.iam_admin_v1 import IAMClient  # noqa: PLC0415

        return self._made(IAMClient)

    @cached_property
    def secrets(self) -> SecretManagerServiceClient:
        """Of Secret Manager."""
        from google.cloud.secretmanager_v1 import SecretManagerServiceClient  # noqa: PLC0415

        return self._made(SecretManagerServiceClient)

    @cached_property
    def metrics(self) -> MetricsServiceV2Client:
        """Of metrics that are counted from log lines."""
        from google.cloud.logging_v2.services.metrics_service_v2 import (  # noqa: PLC0415
            MetricsServiceV2Client,
        )

        return self._made(MetricsServiceV2Client)

    @cached_property
    def alerts(self) -> AlertPolicyServiceClient:
        """Of alert policies."""
        from google.cloud.monitoring_v3 import AlertPolicyServiceClient  # noqa: PLC0415

        return self._made(AlertPolicyServiceClient)

    @cached_property
    def notification_channels(self) -> NotificationChannelServiceClient:
        """Of whom alerts are sent to."""
        from google.cloud.monitoring_v3 import NotificationChannelServiceClient  # noqa: PLC0415

        return self._made(NotificationChannelServiceClient)

    @cached_property
    def storage(self) -> StorageClient:
        """Of Cloud Storage."""
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
        from google.cloud.storage import Client  # noqa: PLC0415

        if address := self.environ.get(_STORAGE_EMULATOR):
            anonymous: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
            options = {"api_endpoint": address}
            return Client(project=self.project, credentials=anonymous, client_options=options)
        return Client(project=self.project)

    def _made(self, client: type[_Client], emulator: str = EMULATOR) -> _Client:
        """Make a client; where there is an emulator, of a plain connection to it."""
        address = self.environ.get(emulator) or self.environ.get(EMULATOR)
        if not address:
            return client()
        import grpc  # noqa: PLC0415 - lazy, see above

        made: Any = client
        transport = made.get_transport_class("grpc")
        channel = grpc.insecure_channel(address)
        return cast(_Client, made(transport=transport(channel=channel)))


def _check_address(name: str, value: str, begins: str) -> None:
    """Refuse what is set and is no address."""
    is_address = _HOST_AND_PORT.fullmatch(value.removeprefix(begins))
    if value and not (value.startswith(begins) and is_address):
        raise SettingError(name=name, value=value[:80], allowed=f"{begins}HOST:PORT")


# Names of IAM that provisioning writes, and the doctor looks for.


#: Members that mean everyone, and their names for people: neither may call a function.
EVERYONE: Final[Mapping[str, str]] = {
    "allUsers": "EVERYONE",
    "allAuthenticatedUsers": "EVERYONE WITH A GOOGLE ACCOUNT",
}

#: An account with this role at a service may call it.
CALL: Final = "roles/run.invoker"
