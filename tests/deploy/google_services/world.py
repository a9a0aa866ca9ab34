"""The resources in the project of the local server that several services share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from google.cloud.logging_v2.types import LogMetric
from google.iam.v1 import policy_pb2
from google.longrunning import operations_pb2


@dataclass
class World:
    """One project.

    Args:
        project: its id.
        number: its number.
        regions: those that there are.

    Attributes:
        policies: by the resource; `IamPolicies` has the rules about etags.
        operations: those that run or ended, by name.
        log_metrics: of Cloud Logging, by name.
        lock: held during each read or change.
    """

    project: str = "shop-prod"
    number: str = "123456789012"
    regions: tuple[str, ...] = ("europe-west1", "us-central1")
    policies: dict[str, policy_pb2.Policy] = field(default_factory=dict)
    operations: dict[str, operations_pb2.Operation] = field(default_factory=dict)
    log_metrics: dict[str, LogMetric] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
