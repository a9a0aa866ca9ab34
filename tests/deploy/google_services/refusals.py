"""How Google's APIs refuse a call: the status, and the details that clients read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

_DOMAIN: Final = "googleapis.com"


@dataclass
class Refusal(Exception):  # noqa: N818 - its word in the services' own documents
    """An error as the service answers with it.

    Args:
        code: the status.
        message: the sentence for people.
        reason: of its ErrorInfo; empty: it has none.
        metadata: of its ErrorInfo.
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    domain: str = _DOMAIN

    def status(self) -> Status:
        status = Status(code=self.code.value[0], message=self.message)
        if self.reason:
            info = ErrorInfo(reason=self.reason, domain=self.domain, metadata=self.metadata)
            packed = AnyMessage()
            packed.Pack(info)
            status.details.append(packed)
        return status


def not_found(what: str) -> Refusal:
    return Refusal(grpc.StatusCode.NOT_FOUND, f"{what} was not found.")


def already_exists(what: str) -> Refusal:
    return Refusal(grpc.StatusCode.ALREADY_EXISTS, f"{what} already exists.")


def invalid(message: str) -> Refusal:
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def aborted(message: str) -> Refusal:
    """An etag that is not that of the stored policy any more."""
    return Refusal(grpc.StatusCode.ABORTED, message)


def exhausted(limit: str) -> Refusal:
    """A quota a minute that is used up."""
    return Refusal(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"Quota exceeded for quota metric '{limit}' and limit '{limit} Per Minute'.",
        "RATE_LIMIT_EXCEEDED",
    )


def unavailable(message: str = "The service is currently unavailable.") -> Refusal:
    return Refusal(grpc.StatusCode.UNAVAILABLE, message)


def unimplemented(path: str) -> Refusal:
    return Refusal(grpc.StatusCode.UNIMPLEMENTED, f"tests/deploy/google_services has no {path}")


def permission_denied(permission: str, resource: str = "//x") -> Refusal:
    """A caller whose roles do not have the permission."""
    return Refusal(
        grpc.StatusCode.PERMISSION_DENIED,
        f"Permission '{permission}' denied on resource '{resource}' (or it may not exist).",
        "IAM_PERMISSION_DENIED",
        {"permission": permission, "resource": resource},
        "iam.googleapis.com",
    )


def api_disabled(service: str, title: str = "This API", number: str = "123456789012") -> Refusal:
    """A project in which the API is not enabled, in the service's own words."""
    address = f"https://console.developers.google.com/apis/api/{service}/overview?project={number}"
    return Refusal(
        grpc.StatusCode.PERMISSION_DENIED,
        f"{title} has not been used in project {number} before or it is disabled. Enable it by "
        f"visiting {address} then retry. If you enabled this API recently, wait a few minutes for "
        "the action to propagate to our systems and retry.",
        "SERVICE_DISABLED",
        {"service": service, "consumer": f"projects/{number}", "serviceTitle": title},
    )
