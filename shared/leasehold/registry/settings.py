"""The settings of a bundle: what each variable means, its default, and what it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from leasehold.domain.status import DeadLetterReason
from leasehold.errors import SettingError, SettingsFileError, UnsetSettingError
from leasehold.registry.registry import Registry
from leasehold.registry.setting_texts import (
    ANY_PROGRAM,
    ANYBODY,
    IAM,
    NOT_SHOWN,
    SettingEntry,
    address,
    as_refused,
    audiences,
    callers,
    events_address,
    identity_header,
    is_email,
    log_levels,
    maybe,
    metric_name,
    metrics_source,
    number,
    one_of,
    own_tasks,
    public_url,
    rights,
    seconds_up_to,
    secrets,
    store_address,
    tasks_address,
    times,
    web_address,
    whole,
    yes_or_no,
)

_DAY_S: Final = 86_400.0
_WEEK_S: Final = 604_800
_WEEK_MS: Final = 7 * 86_400_000
_SECONDS: Final = "seconds above 0, at most 86400"
_MILLISECONDS: Final = f"whole milliseconds from 1 to {_WEEK_MS}"
_seconds: Final = seconds_up_to(_DAY_S)
_milliseconds: Final = times(timedelta(milliseconds=1), whole(1, _WEEK_MS))
_DAY: Final = timedelta(days=1)
_MAX_ENV_CHARS: Final = 64
_PRINTABLE: Final = "16 to 4096 printable characters of ASCII, without blanks and commas"
_ALSO: Final = "or NEW,OLD while it is changed"


def _deployment(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:_MAX_ENV_CHARS] or "unknown"


def _strategy(text: str) -> Any:
    from leasehold.budgets.proposal import Strategy  # noqa: PLC0415 - no catalog needs it

    return Strategy(text)


SETTINGS: Final = Registry(
    "settings",
    [
        SettingEntry(
            "LEASEHOLD_STORE",
            "sqlite:///.leasehold/leasehold.db",
            "sqlite:///PATH, or firestore://PROJECT/DATABASE",
            "where runs are kept; FIRESTORE_EMULATOR_HOST is honoured",
            store_address,
        ),
        SettingEntry(
            "LEASEHOLD_TASKS",
            "in-process",
            "in-process, or cloud-tasks://PROJECT/LOCATION",
            "the task queue",
            tasks_address,
        ),
        SettingEntry(
            "LEASEHOLD_EVENTS",
            "in-process",
            "in-process, pubsub://PROJECT/TOPIC, or http://127.0.0.1:PORT",
            "where it is said that an announcement is due; PUBSUB_EMULATOR_HOST is honoured. "
            "http:// is the dev server's, which sets it",
            events_address,
        ),
        SettingEntry(
            "LEASEHOLD_PUBLIC_URL",
            "",
            "http://… or https://…, without query, fragment, name or password",
            "where people reach the runs API, for the links of announcements; where it is not "
            "set, links are paths",
            public_url,
        ),
        SettingEntry(
            "LEASEHOLD_ARTIFACTS",
            "file://.leasehold/artifacts",
            "file://FOLDER, or gs://BUCKET/PREFIX",
            "where large values and the files of handlers are kept; "
            "STORAGE_EMULATOR_HOST is honoured",
            address("file://", "gs://"),
        ),
        SettingEntry(
            "LEASEHOLD_ARTIFACTS_SHARED",
            "no",
            "yes, or no",
            "whether each machine that uses a firestore:// store has the folder of "
            "LEASEHOLD_ARTIFACTS; else a folder is refused there",
            yes_or_no,
        ),
        SettingEntry(
            "CLOUD_TASKS_EMULATOR_URL",
            "",
            "http://HOST:PORT",
            "a local server that plays Cloud Tasks; the dev server sets it",
            maybe(web_address),
            sets="CloudTasks.emulator_url",
        ),
        SettingEntry(
            "LEASEHOLD_FUNCTION_URL",
            "",
            "http://… or https://…",
            "where tasks are sent: the address of execute_step",
            maybe(web_address),
            sets="CloudTasks.function_url",
        ),
        SettingEntry(
            "LEASEHOLD_TASK_ACCOUNT",
            "",
            "the email of a service account",
            "whose OIDC token tasks carry",
            str,
            sets="CloudTasks.task_account",
        ),
        SettingEntry(
            "LEASEHOLD_CALLERS",
            "",
            "the emails of accounts, separated by commas; or iam: all that IAM lets in",
            "who may call this function ([security.md](security.md)); a function on Cloud Run does "
            "not start without it",
            callers,
            sets="CallerCheck.accounts",
        ),
        SettingEntry(
            "LEASEHOLD_RIGHTS",
            ANY_PROGRAM,
            "EMAIL=read+change+cancel for each account, or any of the three, separated by commas; "
            "or EMAIL=viewer, which is read, or EMAIL=operator, which is all three; "
            "* in place of an email: all others",
            "what each caller that signed in may do; one that is not named may do nothing. By "
            "default calls may do everything, and pages change nothing "
            "([security.md](security.md#who-may-do-what))",
            rights,
            sets="CallerCheck.rights",
        ),
        SettingEntry(
            "LEASEHOLD_TOKEN",
            "",
            f"{_PRINTABLE}; {_ALSO}",
            "the secret with which callers of `leasehold serve` sign in, and which commands with "
            "--url and clients send ([security.md](security.md#leasehold-serve))",
            secrets,
            is_secret=True,
        ),
        SettingEntry(
            "LEASEHOLD_VIEWER_TOKEN",
            "",
            f"{_PRINTABLE}; {_ALSO}; another than LEASEHOLD_TOKEN, which it needs",
            "the secret with which callers of `leasehold serve` may read, and change nothing",
            secrets,
            is_secret=True,
        ),
        SettingEntry(
            "LEASEHOLD_LINK_SECRET",
            "",
            f"{_PRINTABLE}; {_ALSO}",
            "the secret that signs links in announcements, by which people send a signal without "
            "signing in; without it there are no such links "
            "([patterns/wait.md](patterns/wait.md#a-link-for-people))",
            secrets,
            is_secret=True,
        ),
        SettingEntry(
            "LEASEHOLD_IDENTITY_HEADER",
            "",
            "the name of a header, such as X-Forwarded-User",
            "in which a proxy before `leasehold serve` says who signed in. It must drop the header "
            "from what callers send ([security.md](security.md#leasehold-serve))",
            identity_header,
        ),
        SettingEntry(
            "LEASEHOLD_AUDIENCE",
            "",
            "addresses, or other audiences of tokens, separated by commas",
            "whom the tokens of callers must be for: the addresses of this function",
            audiences,
            sets="CallerCheck.audiences",
        ),
        SettingEntry(
            "LEASEHOLD_CATALOG",
            "pipelines.catalog",
            "the name of a module with STEPS and PIPELINES",
            "what this bundle runs",
            str,
        ),
        SettingEntry(
            "LEASEHOLD_ALLOW_LOCAL_CHANNELS",
            "no",
            "yes, or no",
            "whether webhooks and Slack may be called over http:// and at addresses of this "
            "machine and of private networks, as in tests and on one machine",
            yes_or_no,
            sets="ChannelOpener.allow_local",
        ),
        SettingEntry(
            "LEASEHOLD_ISOLATION",
            "",
            "inline, or nothing",
            "inline: every handler runs in a thread of its worker, where a breakpoint works and no "
            "limit can stop it. Where it is not set, each step says",
            maybe(one_of("inline")),
        ),
        SettingEntry(
            "LEASEHOLD_LOG_LEVEL",
            "INFO",
            "DEBUG, INFO, WARNING or ERROR; and LOGGER=LEVEL for each logger with "
            "its own level, separated by commas",
            "from which level on functions, dev, serve and start --in-process write log lines, "
            "such as INFO,httpx=WARNING",
            log_levels,
        ),
        SettingEntry(
            "LEASEHOLD_LOG_FORMAT",
            "",
            "text, json, or nothing",
            "the form of all log lines of dev, serve and start --in-process. Where it is not set, "
            "they are text, and events are JSON where stderr is no terminal. Deployed functions "
            "always write JSON",
            one_of("", "text", "json"),
        ),
        SettingEntry(
            "LEASEHOLD_RETENTION_DAYS",
            "",
            "a whole number of days from 1 to 36500",
            "how long ended runs are kept; the sweep purges older ones. Where it is not set, all "
            "are kept",
            maybe(times(_DAY, whole(1, 36_500))),
            sets="Retention.after",
        ),
        SettingEntry(
            "PIPELINE_MAX_RETRIES",
            "5",
            "a whole number from 0 to 1000",
            "how often a failed attempt is repeated without progress in between, where the step "
            "does not say",
            whole(0, 1000),
            decides=(DeadLetterReason.RETRIES_EXHAUSTED,),
        ),
        SettingEntry(
            "PIPELINE_MAX_FAILURES",
            "100",
            "a whole number from 0 to 1000000",
            "how often a step may fail in all, with progress in between; never less often than its "
            "retries allow",
            whole(0, 1_000_000),
            sets="Rules.max_failures",
            decides=(DeadLetterReason.RETRIES_EXHAUSTED,),
        ),
        SettingEntry(
            "PIPELINE_MAX_INTERRUPTIONS",
            "10",
            "a whole number from 0 to 1000",
            "how often a step may be interrupted or lose its lease without progress in between; "
            "time off and further shutdowns within ten minutes do not count",
            whole(0, 1000),
            sets="Rules.max_interruptions",
            decides=(DeadLetterReason.STUCK_IN_PROGRESS, DeadLetterReason.NEVER_STARTED),
        ),
        SettingEntry(
            "PIPELINE_STUCK_TIMEOUT_MS",
            "900000",
            _MILLISECONDS,
            "how long nothing may be heard of a step before that counts as a silence, though never "
            "before its lease is over; the second silence without progress gives the run up",
            _milliseconds,
            sets="Rules.stuck_timeout",
            decides=(DeadLetterReason.STUCK_IN_PROGRESS,),
        ),
        SettingEntry(
            "PIPELINE_RECOVERY_WINDOW_MS",
            "3600000",
            _MILLISECONDS,
            "how long after a failure the task of the next attempt may be known to be lost; time "
            "parked, and time without a sweep, do not count",
            _milliseconds,
            sets="Rules.recovery_window",
            decides=(DeadLetterReason.UNRECOVERED_ERROR,),
        ),
        SettingEntry(
            "PIPELINE_DISPATCH_GRACE_S",
            "60",
            _SECONDS,
            "how long after its time a task may still come before the sweep looks for it",
            _seconds,
            sets="Rules.grace",
        ),
        SettingEntry(
            "PIPELINE_IMPORT_TIMEOUT_S",
            "60",
            _SECONDS,
            "how long the import of a handler's module may take; its agent timeout begins after it",
            _seconds,
            sets="ProcessRunner.import_time",
        ),
        SettingEntry(
            "PIPELINE_LEASE_TTL_S",
            "30",
            _SECONDS,
            "how long a lease runs unrenewed",
            _seconds,
            sets="Rules.lease_ttl",
        ),
        SettingEntry(
            "PIPELINE_HEARTBEAT_S",
            "",
            f"{_SECONDS}, and at most half of PIPELINE_LEASE_TTL_S",
            "how often a lease is renewed; where it is not set, the step says (10 s)",
            maybe(_seconds),
        ),
        SettingEntry(
            "PIPELINE_MIN_BACKOFF_S",
            "10",
            f"{_SECONDS}, and at most PIPELINE_MAX_BACKOFF_S",
            "the wait after a first failure",
            _seconds,
            sets="Backoff.minimum",
        ),
        SettingEntry(
            "PIPELINE_MAX_BACKOFF_S",
            "300",
            _SECONDS,
            "the longest wait after a failure",
            _seconds,
            sets="Backoff.maximum",
        ),
        SettingEntry(
            "PIPELINE_MAX_DOUBLINGS",
            "5",
            "a whole number from 0 to 16",
            "how often the wait doubles",
            whole(0, 16),
            sets="Backoff.doublings",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_TRIES",
            "3",
            "a whole number from 1 to 100",
            "how often the call that begins an announcement tries to send it, if its time allows",
            whole(1, 100),
            file_key="delivery.retry_policy.tries",
            sets="DeliveryRules.tries",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_WAIT_S",
            "5",
            f"{_SECONDS}, and at most PIPELINE_DELIVERY_MAX_WAIT_S",
            "the wait after the first send that failed",
            _seconds,
            file_key="delivery.retry_policy.first_wait",
            sets="DeliveryRules.first_wait",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_MULTIPLIER",
            "2",
            "a number from 1 to 10",
            "how much longer each further wait is than the one before",
            number(1, 10),
            file_key="delivery.retry_policy.multiplier",
            sets="DeliveryRules.multiplier",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_MAX_WAIT_S",
            "600",
            _SECONDS,
            "the longest wait between two sends, where the provider does not ask for a longer one",
            _seconds,
            sets="DeliveryRules.longest_wait",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_TIMEOUT_S",
            "10",
            "seconds above 0, at most 600",
            "how long one send of an announcement may take",
            seconds_up_to(600),
            sets="DeliveryRules.timeout",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_CALL_S",
            "60",
            _SECONDS,
            "how long one call of deliver_notification may take, with all its tries: less than the "
            "function has",
            _seconds,
            sets="DeliveryRules.call_time",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_GIVE_UP_S",
            "86400",
            f"seconds above 0, at most {_WEEK_S}",
            "how long an announcement is tried that no provider takes",
            seconds_up_to(_WEEK_S),
            sets="DeliveryRules.give_up_after",
        ),
        SettingEntry(
            "PIPELINE_CHANNEL_FAILURES",
            "5",
            "a whole number from 1 to 1000",
            "after so many failed sends in a row nothing is sent to a channel for a while",
            whole(1, 1000),
            sets="DeliveryRules.channel_failures",
        ),
        SettingEntry(
            "PIPELINE_CHANNEL_REST_S",
            "60",
            _SECONDS,
            "how long nothing is sent then, until one send tries how it is",
            _seconds,
            sets="DeliveryRules.channel_rest",
        ),
        SettingEntry(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "",
            "http://… or https://…",
            "where telemetry is sent, by OTLP over HTTP; where it is not set, there is none. A "
            "platform may set it for all its programs, so any other text is logged, and means none",
            str,
        ),
        SettingEntry(
            "DEPLOYMENT_ENV",
            "unknown",
            "a text; the first 64 characters count",
            "which deployment it is, such as production: the attribute env of telemetry",
            _deployment,
            sets="open_telemetry.env",
        ),
        SettingEntry(
            "PIPELINE_DELIVERY_STORE",
            "runs",
            "runs",
            "where it is kept which announcements were sent, so that none is sent twice: the store "
            "of the runs",
            one_of("runs"),
            file_key="delivery.idempotency_store",
        ),
        SettingEntry(
            "PIPELINE_OWN_TASKS",
            "",
            "step types, or ids of queues, separated by commas; or all",
            "the steps of which each attempt has its own task; the others begin in the request of "
            "the step before, where they fit into what is left of it "
            "([costs.md](costs.md#the-next-step-in-the-same-request))",
            own_tasks,
        ),
        SettingEntry(
            "PIPELINE_LIMIT_STRATEGY",
            "fixed",
            "fixed, propose or phase_decoupled",
            "how the limits of a step are chosen, where its entry does not say "
            "([timeouts.md](timeouts.md)): fixed: as the entry has them; propose: likewise, and "
            "better ones are proposed; phase_decoupled: as its attempts of the last days need",
            _strategy,
            file_key="scheduling.strategy",
            sets="BudgetSettings.strategy",
        ),
        SettingEntry(
            "PIPELINE_METRICS_SOURCE",
            "ledger",
            "ledger, or http://… or https://…",
            "where the durations of attempts come from: the ledger of the runs, or a server with "
            "the query API of Prometheus",
            metrics_source,
            file_key="scheduling.metrics_source",
        ),
        SettingEntry(
            "PIPELINE_BUDGET_INIT_SOURCE",
            "metric:agent.bootstrap_seconds",
            "metric:NAME",
            "the histogram of bootstraps, on that server",
            metric_name,
            file_key="budget.init_p95.source",
            sets="PrometheusSamples.bootstrap",
        ),
        SettingEntry(
            "PIPELINE_BUDGET_EXEC_SOURCE",
            "metric:agent.execution_seconds",
            "metric:NAME",
            "the histogram of executions, on that server",
            metric_name,
            file_key="budget.exec_p95.source",
            sets="PrometheusSamples.execution",
        ),
        SettingEntry(
            "PIPELINE_BUDGET_PERCENTILE",
            "0.95",
            "a share from 0.5 to 0.999",
            "the share of attempts that a derived limit leaves time for",
            number(0.5, 0.999),
            file_key="budget.percentile",
            sets="BudgetSettings.percentile",
        ),
        SettingEntry(
            "PIPELINE_BUDGET_BUFFER_S",
            "180",
            "seconds from 0 to 86400",
            "what a derived limit adds to both percentiles",
            times(timedelta(seconds=1), number(0, _DAY_S)),
            file_key="budget.safety_buffer",
            sets="BudgetSettings.safety_buffer",
        ),
        SettingEntry(
            "PIPELINE_BUDGET_ROUNDING_S",
            "60",
            _SECONDS,
            "a derived limit is rounded up to a multiple of it",
            _seconds,
            file_key="budget.rounding_granularity",
            sets="BudgetSettings.rounding_granularity",
        ),
        SettingEntry(
            "PIPELINE_BUDGET_WINDOW_DAYS",
            "7",
            "a whole number of days from 1 to 90",
            "how far back attempts count",
            times(_DAY, whole(1, 90)),
            file_key="budget.window",
            sets="BudgetSettings.window",
        ),
        SettingEntry(
            "LEASEHOLD_CONFIG",
            "",
            "the path of a YAML file, or nothing",
            "a file with any of these settings ([configuration.md](configuration.md)); the "
            "environment goes over it",
            str,
        ),
    ],
)


#: By its key in the configuration file.
FILE_KEYS: Final[Mapping[str, SettingEntry]] = {
    entry.file_key or f"settings.{entry.name}": entry
    for entry in SETTINGS
    if entry.name != "LEASEHOLD_CONFIG" and not entry.is_secret
}


def read_settings(
    environ: Mapping[str, str], warn: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """Return the value of each setting, by its variable.

    Args:
        environ: the environment.
        warn: called with a line for each threshold that is refused; its default holds.

    Raises:
        SettingError: another variable has a value that is not allowed.
        SettingsFileError: the file of LEASEHOLD_CONFIG cannot be used.
    """
    given, environ = environ, with_config_file(environ)
    try:
        return _together(environ, warn)
    except SettingError as error:
        name = error.details["name"]
        if name not in environ or environ[name] != _of_file(given).get(name):
            raise
        key = SETTINGS[name].file_key or f"settings.{name}"
        problem = f"{key}: {error.message.removesuffix('.')}"
        raise SettingsFileError(where=given["LEASEHOLD_CONFIG"], problem=problem) from None


def arguments_of(part: Callable[..., object], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class or function that settings have: those whose rows name it."""
    of_part = f"{part.__name__}."
    rows = [entry for entry in SETTINGS if entry.sets.startswith(of_part)]
    return {entry.sets.removeprefix(of_part): settings[entry.name] for entry in rows}


def _together(environ: Mapping[str, str], warn: Callable[[str], object]) -> dict[str, Any]:
    """Return the values, each allowed by itself and beside the others."""
    values = {entry.name: _read(entry, environ, warn) for entry in SETTINGS}
    heartbeat, ttl = values["PIPELINE_HEARTBEAT_S"], values["PIPELINE_LEASE_TTL_S"]
    if heartbeat is not None and heartbeat > ttl / 2:
        raise _refused(SETTINGS["PIPELINE_HEARTBEAT_S"], environ["PIPELINE_HEARTBEAT_S"])
    if values["PIPELINE_MIN_BACKOFF_S"] > values["PIPELINE_MAX_BACKOFF_S"]:
        shortest = SETTINGS["PIPELINE_MIN_BACKOFF_S"]
        raise _refused(shortest, environ.get(shortest.name, shortest.default))
    if values["PIPELINE_DELIVERY_WAIT_S"] > values["PIPELINE_DELIVERY_MAX_WAIT_S"]:
        first = SETTINGS["PIPELINE_DELIVERY_WAIT_S"]
        raise _refused(first, environ.get(first.name, first.default))
    names = set(values["LEASEHOLD_RIGHTS"] or ()) - {ANYBODY}
    if not values["LEASEHOLD_IDENTITY_HEADER"] and not all(map(is_email, names)):
        raise _refused(SETTINGS["LEASEHOLD_RIGHTS"], environ["LEASEHOLD_RIGHTS"])
    check_queue(values)
    return values


def with_config_file(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment over the settings of the file that its LEASEHOLD_CONFIG names.

    Raises:
        SettingsFileError: the file cannot be used.
    """
    return {**_of_file(environ), **environ}


def _of_file(environ: Mapping[str, str]) -> Mapping[str, str]:
    path = environ.get("LEASEHOLD_CONFIG")
    if not path:
        return {}
    from leasehold.registry.config_file import settings_in  # noqa: PLC0415 - most have none

    return settings_in(path, FILE_KEYS)


def _read(entry: SettingEntry, environ: Mapping[str, str], warn: Callable[[str], object]) -> Any:
    text = environ.get(entry.name, entry.default)
    try:
        return entry.read(text)
    except ValueError:
        if not entry.is_threshold:
            raise _refused(entry, text) from None
    warn(
        f"{entry.name} refused: it is {as_refused(text)}; allowed: {entry.allowed}. "
        f"The default {entry.default} is in force."
    )
    return entry.read(entry.default)


def _refused(entry: SettingEntry, text: str) -> SettingError:
    value = NOT_SHOWN if entry.is_secret else text
    return SettingError(name=entry.name, value=value, allowed=entry.allowed)


# Settings that do not go together: each is allowed, and with the others a run would be lost.
#
# Each is refused with what repairs it.


#: Set by Cloud Run in each of its instances.
ON_CLOUD_RUN: Final = "K_SERVICE"

Settings = Mapping[str, Any]

_NEEDED_BY_VIEWERS: Final = "LEASEHOLD_VIEWER_TOKEN needs it"
_SIGN_IN: Final = (
    f"{_PRINTABLE} (`openssl rand -hex 24` prints one); or LEASEHOLD_IDENTITY_HEADER to the header "
    "in which a proxy says who signed in"
)


def check_endpoint(text: str) -> None:
    """Refuse an address that OTLP over HTTP cannot be sent to."""
    entry = SETTINGS["OTEL_EXPORTER_OTLP_ENDPOINT"]
    try:
        web_address(text)
    except ValueError:
        raise _refused(entry, text) from None


def check_artifacts(settings: Settings) -> None:
    """Refuse a folder of this machine beside a store that other machines use.

    Raises:
        SettingError: what is stored here, a worker elsewhere would look for in vain.
    """
    name = "LEASEHOLD_ARTIFACTS"
    is_local = settings[name].startswith("file:") and not settings["LEASEHOLD_ARTIFACTS_SHARED"]
    if _is_shared(settings) and is_local:
        reason = "workers on other machines would not find what is stored in a folder of this one"
        repair = "if it is shared by all of them, set LEASEHOLD_ARTIFACTS_SHARED=yes"
        raise _conflict(settings, name, f"gs://BUCKET/PREFIX, because {reason}; {repair}")


def check_functions(settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse what a function cannot work with, which runs nothing unless a task tells it to.

    Raises:
        SettingError: its runs would be gone with the instance, or never run.
    """
    if ON_CLOUD_RUN in environ and not _is_shared(settings):
        reason = "the disk of a function is gone with its instance, and the runs with it"
        raise _conflict(settings, "LEASEHOLD_STORE", f"firestore://PROJECT/DATABASE, as {reason}")
    if _is_shared(settings) and settings["LEASEHOLD_TASKS"] == "in-process":
        reason = "a function takes no tasks from a queue in its memory"
        repair = "on one machine, `leasehold serve` runs them"
        allowed = f"cloud-tasks://PROJECT/LOCATION, because {reason}; {repair}"
        raise _conflict(settings, "LEASEHOLD_TASKS", allowed)
    check_artifacts(settings)
    check_callers(settings, environ)


def check_callers(settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse a function that no caller may call, or any caller.

    Raises:
        SettingError: it is not said who may call it, or whom their tokens are for.
    """
    callers = settings["LEASEHOLD_CALLERS"]
    if ON_CLOUD_RUN in environ:
        if not callers:
            problem = f"this is a function on Cloud Run ({ON_CLOUD_RUN}={environ[ON_CLOUD_RUN]})"
            allowed = "the emails of the accounts that may call it, or to iam: all that IAM lets in"
            raise UnsetSettingError(name="LEASEHOLD_CALLERS", problem=problem, allowed=allowed)
    elif callers and callers != (IAM,) and not settings["LEASEHOLD_AUDIENCE"]:
        problem = "LEASEHOLD_CALLERS needs it"
        allowed = "the addresses of this function, which the tokens of its callers are for"
        raise UnsetSettingError(name="LEASEHOLD_AUDIENCE", problem=problem, allowed=allowed)


def check_sign_in(settings: Settings, host: str | None = None) -> None:
    """Refuse a server that lets callers of other machines in without asking who they are.

    Args:
        settings: the values of the settings.
        host: where it listens beyond this machine; None: it does not.

    Raises:
        SettingError: there is no sign-in, or half of one.
    """
    operator, viewer = settings["LEASEHOLD_TOKEN"], settings["LEASEHOLD_VIEWER_TOKEN"]
    if set(viewer) & set(operator):
        raise _refused(SETTINGS["LEASEHOLD_VIEWER_TOKEN"], NOT_SHOWN)
    is_safe = operator or settings["LEASEHOLD_IDENTITY_HEADER"]
    if is_safe or (host is None and not viewer):
        return
    listens = f"--host {host} lets in callers of other machines"
    problem = _NEEDED_BY_VIEWERS if host is None else listens
    raise UnsetSettingError(name="LEASEHOLD_TOKEN", problem=problem, allowed=_SIGN_IN)


def check_queue(settings: Settings) -> None:
    """Refuse a queue that does not know where to deliver, or would be turned away there.

    Raises:
        SettingError: no task would arrive.
    """
    if settings["LEASEHOLD_TASKS"] == "in-process":
        return
    if settings["LEASEHOLD_FUNCTION_URL"] is None:
        allowed = "the http://… or https://… address of execute_step, where tasks are sent"
        raise _unset(settings, "LEASEHOLD_FUNCTION_URL", allowed)
    if settings["CLOUD_TASKS_EMULATOR_URL"] is None and not settings["LEASEHOLD_TASK_ACCOUNT"]:
        allowed = (
            "the email of a service account that may call execute_step, which tasks sign in as"
        )
        raise _unset(settings, "LEASEHOLD_TASK_ACCOUNT", allowed)


def _is_shared(settings: Settings) -> bool:
    """Return whether other machines may use the store."""
    return bool(settings["LEASEHOLD_STORE"].startswith("firestore:"))


def _unset(settings: Settings, name: str, allowed: str) -> UnsetSettingError:
    problem = f"LEASEHOLD_TASKS={settings['LEASEHOLD_TASKS']} needs it"
    return UnsetSettingError(name=name, problem=problem, allowed=allowed)


def _conflict(settings: Settings, name: str, allowed: str) -> SettingError:
    return SettingError(name=name, value=settings[name], allowed=allowed)
