"""Who may call each function: nobody but who has to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.live.clients import ONE_TRY
from leasehold.live.iam import CALL, EVERYONE


def callers(deployment: Deployment) -> Iterator[Finding]:
    """Yield who may call a function and should not, and who should and may not."""
    for entry, service in deployment.deployed():
        policy = deployment.clients.services.get_iam_policy({"resource": service.name}, **ONE_TRY)
        invokers = {
            member
            for binding in policy.bindings
            if binding.role == CALL
            for member in binding.members
        }
        for binding in policy.bindings:
            for member in sorted(EVERYONE.keys() & {*binding.members}):
                held = f"{member} has {binding.role}"
                message = f"{EVERYONE[member]} may call function {entry.service} ({held})."
                flags = (f"--member={member}", f"--role={shlex.quote(binding.role)}")
                repair = deployment.of_run("remove-iam-policy-binding", entry.service, *flags)
                yield Finding("public_function", message, repair)
        if service.invoker_iam_disabled:
            message = f"EVERYONE may call function {entry.service}: its check by IAM is off."
            repair = deployment.of_run("update", entry.service, "--invoker-iam-check")
            yield Finding("public_function", message, repair)
        caller = deployment.caller_of(entry)
        if caller and f"serviceAccount:{caller}" not in invokers:
            message = (
                f"{caller} may not call function {entry.service}: what it is sent is answered 403."
            )
            flags = (f"--member=serviceAccount:{caller}", f"--role={CALL}")
            repair = deployment.of_run("add-iam-policy-binding", entry.service, *flags)
            yield Finding("invoker_missing", message, repair)
