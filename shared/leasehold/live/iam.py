"""Names of IAM that provisioning writes, and the doctor looks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Members that are everyone, and what they are called to people: neither ever calls a function.
EVERYONE: Final[Mapping[str, str]] = {
    "allUsers": "EVERYONE",
    "allAuthenticatedUsers": "EVERYONE WITH A GOOGLE ACCOUNT",
}

#: Whoever has this role at a service may call it.
CALL: Final = "roles/run.invoker"
