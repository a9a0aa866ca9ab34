"""Operations that take a while, of all services."""

from __future__ import annotations

from typing import Any

from google.cloud.firestore_admin_v1.services.firestore_admin.transports import (
    FirestoreAdminGrpcTransport,
)
from google.cloud.run_v2.services.services.transports import ServicesGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.deploy.google_services.refusals import not_found
from tests.deploy.google_services.service import Service
from tests.deploy.google_services.world import World


class Operations(Service):
    """An operation, and whether it has ended."""

    name = "google.longrunning.Operations"
    transports = (FirestoreAdminGrpcTransport, ServicesGrpcTransport)

    def get_operation(self, request: Any) -> operations_pb2.Operation:
        if request.name not in self.world.operations:
            raise not_found(f"Operation {request.name}")
        return self.world.operations[request.name]

    def list_operations(self, request: Any) -> operations_pb2.ListOperationsResponse:
        """Return those of a database and its parts."""
        of = [one for name, one in self.world.operations.items() if name.startswith(request.name)]
        return operations_pb2.ListOperationsResponse(operations=of)


def begun(
    world: World, parent: str, response: Any, *, done: bool = True, metadata: Any = None
) -> Any:
    """Return an operation that has this result once it is done; `finish` makes it so."""
    name = f"{parent}/operations/{len(world.operations) + 1}"
    packed = AnyMessage()
    packed.Pack(type(response).pb(response) if hasattr(type(response), "pb") else response)
    operation = operations_pb2.Operation(name=name, done=done)
    if metadata is not None:
        operation.metadata.Pack(type(metadata).pb(metadata))
    if done:
        operation.response.CopyFrom(packed)
    world.operations[name] = operation
    return operation
