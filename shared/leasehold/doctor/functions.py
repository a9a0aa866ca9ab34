"""The functions as they are deployed against their table, and their settings against each other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from leasehold.doctor.deployment import Deployment, variables_of
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.setup import MARGIN, longest_deadline
from leasehold.domain.printable import one_line
from leasehold.errors import without_user
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import EVERYONE, ONE_TRY
from leasehold.registry.functions import FunctionEntry, Trigger, Use

if TYPE_CHECKING:
    from google.cloud.run_v2 import Service

_MAX_WORDS_CHARS: Final = 120
_SECOND: Final = "EXECUTION_ENVIRONMENT_GEN2"
#: What all functions have to agree on, or they look after different runs.
_SHARED: Final = (
    "LEASEHOLD_STORE",
    "LEASEHOLD_TASKS",
    "LEASEHOLD_EVENTS",
    "LEASEHOLD_ARTIFACTS",
    "LEASEHOLD_CATALOG",
)


def functions(deployment: Deployment) -> Iterator[Finding]:
    """Yield what is wrong with the functions themselves."""
    deployed = deployment.deployed()
    if not deployed:
        message = (
            f"No function of the table is deployed in project {deployment.project}, region "
            f"{deployment.region}: are they the right ones?"
        )
        yield Finding("nothing_deployed", message, _deploy(deployment))
        return
    there = {entry.name for entry, _ in deployed}
    for entry in deployment.setup.functions:
        if entry.name not in there:
            message = f"Function {entry.service} is not deployed: nothing {entry.summary}."
            yield Finding("function_missing", message, _deploy(deployment))
    for entry, service in deployed:
        yield from _state(deployment, entry, service)
        yield from _environment(deployment, entry, service)
        yield from _time(deployment, entry, service)
        yield from _concurrency(deployment, entry, service)
        yield from _account(deployment, entry, service)


def function_settings(deployment: Deployment) -> Iterator[Finding]:
    """Yield what is wrong with the settings of the functions."""
    deployed = deployment.deployed()
    for name in _SHARED:
        yield from _disagreement(deployment, name, deployed)
    for entry, service in deployed:
        variables = variables_of(service)
        if not variables.get("LEASEHOLD_CALLERS"):
            message = f"Function {entry.service} has no LEASEHOLD_CALLERS: it does not start."
            callers = deployment.caller_of(entry) or "iam"
            repair = _set(deployment, entry, f"LEASEHOLD_CALLERS={callers}")
            yield Finding("no_callers", message, repair)
        threads = variables.get("THREADS", "")
        if threads != str(entry.concurrency):
            message = (
                f"Function {entry.service} has THREADS={threads or '(not set)'}, and the table "
                f"has {entry.concurrency} requests at once in an instance: the others wait there."
            )
            repair = _set(deployment, entry, f"THREADS={entry.concurrency}")
            yield Finding("function_threads", message, repair)
        yield from _target(deployment, entry, variables)


def _state(deployment: Deployment, entry: FunctionEntry, service: Service) -> Iterator[Finding]:
    condition = service.terminal_condition
    if condition.state.name == "CONDITION_FAILED":
        why = one_line(condition.message, _MAX_WORDS_CHARS).rstrip(".") or condition.type_
        message = f"Function {entry.service} is not ready ({why}): it serves an earlier revision."
        repair = deployment.of_run("describe", entry.service)
        yield Finding("function_not_ready", message, repair)


def _environment(
    deployment: Deployment, entry: FunctionEntry, service: Service
) -> Iterator[Finding]:
    if entry.runs_handlers and service.template.execution_environment.name != _SECOND:
        message = (
            f"Function {entry.service} is not in the second-generation execution environment: "
            "where its handlers start processes, their memory is counted too high."
        )
        flag = f"--execution-environment={entry.environment}"
        repair = deployment.of_run("update", entry.service, flag)
        yield Finding("function_environment", message, repair, kind=Kind.WARNING)


def _time(deployment: Deployment, entry: FunctionEntry, service: Service) -> Iterator[Finding]:
    has = service.template.timeout or timedelta(minutes=5)  # what Cloud Run has by default
    longest = longest_deadline(deployment.setup) if entry.trigger is Trigger.TASKS else None
    needs = max(entry.timeout, longest + MARGIN if longest else timedelta(0))
    if has < needs:
        why = (
            f"step limits need {_s(longest + MARGIN)}"
            if longest is not None and longest + MARGIN > entry.timeout
            else f"the table has {_s(entry.timeout)}"
        )
        message = (
            f"Function {entry.service} has {_s(has)} for a request, and {why}: it is ended before "
            "it can record what it did."
        )
        repair = deployment.of_run("update", entry.service, f"--timeout={_s(needs)}")
        yield Finding("function_timeout", message, repair)


def _concurrency(
    deployment: Deployment, entry: FunctionEntry, service: Service
) -> Iterator[Finding]:
    template = service.template
    has = template.max_instance_request_concurrency or 80  # what Cloud Run has by default
    if has != entry.concurrency:
        message = (
            f"Function {entry.service} takes {has} requests at once in an instance, and the table "
            f"has {entry.concurrency}."
        )
        repair = deployment.of_run("update", entry.service, f"--concurrency={entry.concurrency}")
        yield Finding("function_concurrency", message, repair)
    warm = max(template.scaling.min_instance_count, service.scaling.min_instance_count)
    if warm < entry.min_instances:
        message = (
            f"Function {entry.service} keeps {warm} instances warm, and the table has "
            f"{entry.min_instances}: calls wait for cold starts."
        )
        repair = deployment.of_run("update", entry.service, f"--min={entry.min_instances}")
        yield Finding("min_instances", message, repair)


def _account(deployment: Deployment, entry: FunctionEntry, service: Service) -> Iterator[Finding]:
    wanted = deployment.email_of(entry.account)
    has = service.template.service_account
    if has != wanted:
        message = (
            f"Function {entry.service} runs as "
            f"{one_line(has, _MAX_WORDS_CHARS) or 'the default account'}, "
            f"and the table has {wanted}, which may do what it needs and no more."
        )
        repair = deployment.of_run("update", entry.service, f"--service-account={wanted}")
        yield Finding("function_account", message, repair)


def _disagreement(
    deployment: Deployment, name: str, deployed: list[tuple[FunctionEntry, Service]]
) -> Iterator[Finding]:
    """Yield a finding where two functions, or they and this machine, do not mean the same."""
    values = {entry: variables_of(service).get(name, "") for entry, service in deployed}
    if not values:
        return
    first, value = next(iter(values.items()))
    for other, its in values.items():
        if its != value:
            message = (
                f"{name} of {first.service} is {_shown(value)}, and of {other.service} "
                f"{_shown(its)}: they do not look after the same runs."
            )
            yield Finding(
                "settings_differ",
                message,
                _set(deployment, other, f"{name}={value}") if value else "",
            )
            return
    here = deployment.setup.environ.get(name)
    if here is not None and here != value:
        message = (
            f"{name} is {_shown(here)} here, and {_shown(value)} where it is deployed: what is "
            "done here is done to other runs."
        )
        repair = f"export {name}={shlex.quote(value)}" if value else f"unset {name}"
        yield Finding("settings_differ_here", message, repair, kind=Kind.WARNING)


def _target(
    deployment: Deployment, entry: FunctionEntry, variables: dict[str, str]
) -> Iterator[Finding]:
    """Yield a finding for a function whose tasks go to an address that runs no steps."""
    step = deployment.services.get(deployment.setup.functions.of_tasks.service)
    url = variables.get("LEASEHOLD_FUNCTION_URL", "").rstrip("/")
    if step is None or Use.TASKS not in entry.uses or not url:
        return
    known = {one.rstrip("/") for one in (step.uri, *step.urls) if one}
    if known and url not in known:
        message = (
            f"Function {entry.service} has tasks sent to {_shown(url)}, which is no address of "
            f"{deployment.setup.functions.of_tasks.service}."
        )
        address = next(iter(sorted(known)))
        repair = _set(deployment, entry, f"LEASEHOLD_FUNCTION_URL={address}")
        yield Finding("function_target", message, repair)


def _set(deployment: Deployment, entry: FunctionEntry, variable: str) -> str:
    flag = f"--update-env-vars={shlex.quote(variable)}"
    return deployment.of_run("update", entry.service, flag)


def _deploy(deployment: Deployment) -> str:
    return f"gcloud builds submit --config=cloudbuild.yaml --project={deployment.project}"


def _shown(value: str) -> str:
    return one_line(without_user(value), _MAX_WORDS_CHARS) or "not set"


def _s(length: timedelta) -> str:
    return f"{length.total_seconds():g}s"


# The callers of each function: only those that need it.


def callers(deployment: Deployment) -> Iterator[Finding]:
    """Yield who may call a function and should not, and who should and may not."""
    from leasehold.deploy.resources.policies import (  # noqa: PLC0415 - for --live alone
        missing_from,
        policies,
        public_in,
    )

    deployed = {service.name: (entry, service) for entry, service in deployment.deployed()}
    at = policies(deployment.clients, deployment.installation, deployment.setup.catalog)
    for permissions in (one for one in at if one.place.name in deployed):
        entry, service = deployed[permissions.place.name]
        policy = permissions.policy.seen
        for member, role in public_in(policy):
            message = f"{EVERYONE[member]} may call function {entry.service} ({member} has {role})."
            yield Finding("public_function", message, permissions.change("remove", member, role))
        if service.invoker_iam_disabled:
            message = f"EVERYONE may call function {entry.service}: its check by IAM is off."
            repair = deployment.of_run("update", entry.service, "--invoker-iam-check")
            yield Finding("public_function", message, repair)
        for member, role in (
            (one.member, one.role) for one in missing_from(policy, permissions.wanted)
        ):
            account = member.removeprefix("serviceAccount:")
            message = (
                f"{account} may not call function {entry.service}: what it is sent is answered 403."
            )
            yield Finding("invoker_missing", message, permissions.change("add", member, role))


# Whether the functions fit the project's quota of Cloud Run: without room some are not started.


if TYPE_CHECKING:
    from google.cloud.cloudquotas_v1 import QuotaInfo
    from google.cloud.run_v2 import Service

_UNLIMITED: Final = -1
_GIB: Final = 1024**3
#: Suffixes of a quantity, as Kubernetes has them, and what Cloud Run reports of a container.
_UNITS: Final[Mapping[str, float]] = {
    "": 1,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class _Quota:
    """A quota of Cloud Run, of a project in a region.

    Args:
        id: as Cloud Quotas has it: https://cloud.google.com/run/quotas
        limit: what of a container counts towards it.
        unit: how many of its units one has of what people know.
        word: what people know it by.
    """

    id: str
    limit: str
    unit: int
    word: str

    def taken(self, entry: FunctionEntry, service: Service) -> float:
        """Return what a function may take with all of its instances, as it is deployed."""
        template = service.template
        most = template.scaling.max_instance_count or entry.max_instances
        found = sum(
            quantity(container.resources.limits.get(self.limit, ""))
            for container in template.containers
        )
        by_table = entry.cpu if self.limit == "cpu" else entry.memory_mib * 1024**2
        return most * (found or by_table)


_QUOTAS: Final = (
    _Quota("CpuAllocPerProjectRegion", "cpu", 1000, "CPUs"),
    _Quota("MemAllocPerProjectRegion", "memory", 1, "GiB of memory"),
)


def quota(deployment: Deployment) -> Iterator[Finding]:
    """Yield where all functions together may take more than the project has in the region."""
    deployed = deployment.deployed()
    for one in _QUOTAS if deployed else ():
        name = (
            f"projects/{deployment.project}/locations/global/services/run.googleapis.com/"
            f"quotaInfos/{one.id}"
        )
        info = deployment.clients.quotas.get_quota_info({"name": name}, **ONE_TRY)
        has = limit_in(deployment.region, info)
        taken = sum(one.taken(entry, service) for entry, service in deployed)
        if has is None or taken * one.unit <= has:
            continue
        message = (
            f"The functions may take {_quantity(one, taken)} together, and the project has "
            f"{_quantity(one, has / one.unit)} in {deployment.region}: under load instances are "
            "refused, of the sweep and the API too. Ask for more, or lower max_instances in "
            "deployment.py."
        )
        repair = (
            f"gcloud beta quotas preferences create --service=run.googleapis.com "
            f"--project={deployment.project} --quota-id={one.id} "
            f"--dimensions=region={deployment.region} --preferred-value={round(taken * one.unit)}"
        )
        yield Finding("quota", message, repair)


def limit_in(region: str, info: QuotaInfo) -> int | None:
    """Return what a project has in a region; None: it has no limit there.

    A limit of the region comes before the limit of all regions without their own.
    https://cloud.google.com/docs/quotas/reference/rest/v1/DimensionsInfo
    """
    of_region = [one for one in info.dimensions_infos if one.dimensions.get("region") == region]
    of_all = [
        one
        for one in info.dimensions_infos
        if "region" not in one.dimensions
        and (not one.applicable_locations or region in one.applicable_locations)
    ]
    values = [one.details.value for one in of_region or of_all]
    return None if not values or _UNLIMITED in values else min(values)


def quantity(text: str) -> float:
    """Return a number such as `2Gi`, `512Mi`, `1` or `1000m`; 0: it is none."""
    found = _QUANTITY.fullmatch(text)
    return float(found[1]) * _UNITS.get(found[2], 0) if found else 0


def _quantity(quota: _Quota, number: float) -> str:
    number = number / _GIB if quota.limit == "memory" else number
    return f"{round(number, 2):g} {quota.word}"
