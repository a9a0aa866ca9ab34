"""When someone is told: one row an alert, each with what to do about it; see docs/alerts.md."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from leasehold.deploy.metrics import METRICS, LogMetric
from leasehold.domain.status import Termination
from leasehold.registry.dead_letters import DEAD_LETTERS
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.registry import Registry

Severity = Literal["CRITICAL", "ERROR", "WARNING"]

_OF_FUNCTIONS: Final = 'resource.type = "cloud_run_revision"'
#: Ends of attempts that a deploy or a person brings about.
_PLANNED: Final = (Termination.INSTANCE_SHUTDOWN, Termination.CANCELLED)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Args:
        name: its id; policies carry it as the label `leasehold`.
        title: what has happened, in a few words.
        severity: how grave it is.
        advice: what it means and what to do, as Markdown.
        filter: what is looked at, in the words of Cloud Monitoring.
        within: the time that is looked at.
        above: it is raised above this number; None: when nothing comes at all.
        by: labels of the metric by which incidents are told apart.
        is_distribution: of the metric; its highest values are looked at.
        replaces: names of earlier alerts that tell the same; each is one too many.
    """

    name: str
    title: str
    severity: Severity
    advice: str
    filter: str
    within: timedelta
    above: float | None = 0
    by: tuple[str, ...] = ()
    is_distribution: bool = False
    replaces: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name


def _of(metric: LogMetric, *conditions: str) -> str:
    """Return a filter for what was counted, where these conditions hold too."""
    return " AND ".join([_OF_FUNCTIONS, f'metric.type = "{metric.type}"', *conditions])


def _dead_letters() -> Alert:
    """Return one alert for all reasons why a run is given up: each condition is billed."""
    reasons = (f"- `{entry.key}`: {entry.meaning} {entry.remediation}" for entry in DEAD_LETTERS)
    advice = (
        "An incident has one reason, and one pipeline. `leasehold runs --dead-lettered` lists the "
        "runs. What each reason means, and what to do:\n\n"
    )
    return Alert(
        "dead-letters",
        "Runs were given up",
        "CRITICAL" if any(entry.severity == "CRITICAL" for entry in DEAD_LETTERS) else "ERROR",
        advice + "\n".join(reasons),
        _of(METRICS["dead-letters"]),
        within=timedelta(minutes=5),
        by=("reason", "pipeline"),
        replaces=tuple(
            f"dead-letter-{entry.key.lower().replace('_', '-')}" for entry in DEAD_LETTERS
        ),
    )


def _no_sweep() -> Alert:
    service = FUNCTIONS["sweep_dead_letters"].service
    conditions = (
        _OF_FUNCTIONS,
        'metric.type = "run.googleapis.com/request_count"',
        f'resource.label.service_name = "{service}"',
        'metric.label.response_code_class = "2xx"',
    )
    return Alert(
        "no-sweep",
        "No sweep has ended well",
        "CRITICAL",
        "No one notices dead workers and lost tasks, and no one repeats announcements.\n\n"
        f"Look at the job `{service}` of Cloud Scheduler (is it paused? what was it answered?), "
        f"then at the log of the function `{service}`: a line with `SWEEP_FINISHED` says in "
        "`detail` what could not be reached.",
        " AND ".join(conditions),
        within=timedelta(minutes=10),
        above=None,
    )


ALERTS: Final = Registry(
    "alerts",
    [
        _dead_letters(),
        Alert(
            "wrong-deploy",
            "Code cannot run its steps",
            "ERROR",
            "A run is blocked because of what is deployed; no retry is used up.\n\n"
            "`handler_unavailable`: a handler, gate or entry action cannot be imported. "
            "`input_mismatch`: it does not take what it is given any more. `input_missing`: the "
            "artifacts are not where they were. `step_unknown`: no catalog has the step. "
            "`leasehold why RUN` has the line. Deploy what is right: the run goes on by itself "
            "within 10 minutes, and with `leasehold retry RUN` at once.",
            _of(METRICS["wrong-deploys"]),
            within=timedelta(minutes=5),
            by=("code", "pipeline"),
        ),
        Alert(
            "announcement-given-up",
            "Announcement given up",
            "ERROR",
            "A channel was not told of a run, and will not be.\n\n"
            "`leasehold deliveries --state given_up` says whom no one has told, and why. Repair "
            "the channel, then `leasehold deliver RUN --channel NAME`.",
            _of(METRICS["announcements"], 'metric.label.event = "ANNOUNCEMENT_GIVEN_UP"'),
            within=timedelta(minutes=5),
            by=("channel",),
        ),
        Alert(
            "terminated-attempts",
            "Many attempts are cut short",
            "WARNING",
            "One is no reason to worry: the step is tried again. This many of one reason are.\n\n"
            "`lease_expired`: workers die, or a handler blocks the interpreter. "
            "`memory_limit_exceeded`, `agent_timeout_exceeded`, `dispatch_deadline_exceeded`: a "
            "step needs more of that, or checkpoints. `…_unavailable`: an outage; runs wait and "
            "are not given up. `leasehold trace RUN` has each with its holder.",
            _of(
                METRICS["terminated-attempts"],
                *(f'metric.label.reason != "{reason}"' for reason in _PLANNED),
            ),
            within=timedelta(minutes=15),
            above=10,
            by=("reason",),
        ),
        Alert(
            "oldest-pending",
            "Runs wait long in a queue",
            "WARNING",
            "A task waits to be delivered for more than 15 minutes.\n\n"
            "`gcloud tasks queues describe QUEUE` says whether it is paused; the log of "
            "`execute-step` whether it answers. If all of its instances are busy, runs wait for "
            "each other: more instances (`deployment.py`), or fewer runs at once.",
            _of(METRICS["oldest-pending"]),
            within=timedelta(minutes=5),
            above=900,
            is_distribution=True,
        ),
        Alert(
            "unfinished-sweeps",
            "Sweeps leave something again and again",
            "WARNING",
            "A single one may meet a run that is locked. Several mean that something cannot be "
            "written or reached: the lines before `SWEEP_FINISHED` say what.",
            _of(METRICS["unfinished-sweeps"]),
            within=timedelta(minutes=15),
            above=5,
        ),
        _no_sweep(),
    ],
)
