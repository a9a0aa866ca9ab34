"""Names of IAM that provisioning writes, and the doctor looks for."""

from __future__ import annotations

from typing import Final

#: Everybody, and everybody who is signed in at Google: neither ever calls a function.
EVERYBODY: Final = ("allUsers", "allAuthenticatedUsers")

#: Whoever has this role at a service may call it.
CALL: Final = "roles/run.invoker"
