"""The codes of what is found in what is deployed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leasehold.doctor.code_entry import CodeEntry, Scope
from leasehold.doctor.finding import Kind

_LIVE = Scope.LIVE

DEPLOYED_CODES: Final[Sequence[CodeEntry]] = (
    CodeEntry(
        "nothing_deployed",
        _LIVE,
        "No function of the table is in this project and region.",
        "The right `--project` and `--region`, or a deploy.",
    ),
    CodeEntry("function_missing", _LIVE, "A function of the table is not deployed.", "Deploy it."),
    CodeEntry(
        "function_not_ready",
        _LIVE,
        "The newest revision of a function does not start; an earlier one serves, or none.",
        "What the description of the service says.",
    ),
    CodeEntry(
        "function_environment",
        _LIVE,
        "`execute_step` is not in Cloud Run's second-generation execution environment. A warning: "
        "steps are held to their `memory_limit` in the first one too, but a page that several "
        "processes share counts there in each of them.",
        "Choose the second one.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "function_concurrency",
        _LIVE,
        "A function takes another number of requests at once than the table has. "
        "`execute_step` takes one: a step that runs out of memory takes no other with it.",
        "Set it as in the table.",
    ),
    CodeEntry(
        "function_threads",
        _LIVE,
        "`THREADS` is not the number of requests at once: the others wait for a thread.",
        "Set `THREADS` to it.",
    ),
    CodeEntry(
        "min_instances",
        _LIVE,
        "A function keeps fewer instances warm than the table has.",
        "Set it as in the table.",
    ),
    CodeEntry(
        "quota",
        _LIVE,
        "All functions together may take more CPUs or memory than the project has in the region: "
        "under load instances are refused, of the sweep and the API too.",
        "Ask for more, or a lower `max_instances` in `deployment.py`, and a deploy.",
    ),
    CodeEntry(
        "function_account",
        _LIVE,
        "A function runs as another account than its own, which may do what it needs and no more.",
        "Have it run as its own.",
    ),
    CodeEntry(
        "secret_in_environment",
        _LIVE,
        "A secret of a channel or a handler is a plain variable of a function.",
        "Have it come from Secret Manager, and replace the secret.",
    ),
    CodeEntry(
        "secret_not_given",
        _LIVE,
        "A function does not have a secret of its row or of its channels, or another version.",
        "A build, or the command of the line.",
    ),
    CodeEntry(
        "no_callers",
        _LIVE,
        "A function has no `LEASEHOLD_CALLERS`: it believes no one and does not start.",
        "Set it.",
    ),
    CodeEntry(
        "settings_differ",
        _LIVE,
        "Two functions have different stores, queues, buses, artifacts or catalogs: they do "
        "not look after the same runs.",
        "Set the same for all.",
    ),
    CodeEntry(
        "settings_differ_here",
        _LIVE,
        "A setting of this machine is not that of the functions. A warning: you may mean it.",
        "Set the same here, for commands on deployed runs.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "function_target",
        _LIVE,
        "A function has tasks sent to an address that is not `execute_step`'s.",
        "Set `LEASEHOLD_FUNCTION_URL` to it.",
    ),
    CodeEntry(
        "public_function", _LIVE, "Everyone may call a function.", "Take the permission away."
    ),
    CodeEntry(
        "invoker_missing",
        _LIVE,
        "The account that calls a function may not: tasks, jobs or messages are answered 403.",
        "Give it `roles/run.invoker` on the function.",
    ),
    CodeEntry(
        "queue_missing",
        _LIVE,
        "A step has no queue: its tasks cannot be created.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry("queue_paused", _LIVE, "A queue is paused or disabled: runs wait.", "Resume it."),
    CodeEntry(
        "queue_attempts",
        _LIVE,
        "A queue drops tasks after some attempts: an outage loses them.",
        "Unlimited attempts.",
    ),
    CodeEntry(
        "queue_backoff",
        _LIVE,
        "A queue waits for more than 10 min between attempts.",
        "A shorter wait.",
    ),
    CodeEntry(
        "queue_concurrency",
        _LIVE,
        "The queues together deliver more tasks at once than `execute_step` takes.",
        "Fewer at once, or more instances.",
    ),
    CodeEntry(
        "job_missing",
        _LIVE,
        "The job of a function that has a schedule is missing, or calls another address: the sweep "
        "never runs.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry("job_paused", _LIVE, "A job is paused, or its last change failed.", "Resume it."),
    CodeEntry("job_failed", _LIVE, "The last call of a job failed.", "What its log says."),
    CodeEntry(
        "job_schedule",
        _LIVE,
        "A job has another schedule than the table.",
        "`leasehold deploy apply --update`, or the command of the line.",
    ),
    CodeEntry(
        "job_deadline",
        _LIVE,
        "A job waits for less long than its function may take: a long call counts as failed.",
        "A longer attempt deadline.",
    ),
    CodeEntry(
        "job_account",
        _LIVE,
        "A job does not sign in, or as another account than the function believes.",
        "Have it sign in as that account.",
    ),
    CodeEntry(
        "topic_missing",
        _LIVE,
        "The topic of announcements does not exist.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry(
        "subscription_missing",
        _LIVE,
        "Nothing pushes announcements to `deliver_notification`.",
        "Deploy it with its trigger.",
    ),
    CodeEntry(
        "subscription_retry",
        _LIVE,
        "A subscription has no retry policy: what failed comes again at once, and again.",
        "A retry policy, 10 s to 600 s.",
    ),
    CodeEntry(
        "subscription_dead_letters",
        _LIVE,
        "A subscription has no dead-letter topic, or no one keeps what goes there: what is "
        "given up is gone.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry(
        "subscription_deadline",
        _LIVE,
        "A subscription waits for less long than the function may take: it sends again what "
        "is being sent.",
        "A longer ack deadline.",
    ),
    CodeEntry(
        "subscription_account",
        _LIVE,
        "A subscription does not sign in, or as another account than the function believes.",
        "Have it sign in as that account.",
    ),
    CodeEntry(
        "subscription_retention",
        _LIVE,
        "A subscription keeps messages for less than a day.",
        "Keep them longer.",
    ),
    CodeEntry(
        "subscription_expires",
        _LIVE,
        "A subscription that had nothing to deliver for some weeks is deleted.",
        "`--expiration-period=never`.",
    ),
    CodeEntry(
        "database_missing",
        _LIVE,
        "The Firestore database does not exist.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry(
        "no_backups",
        _LIVE,
        "No schedule backs the database up.",
        "`leasehold deploy apply`.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "no_earlier_versions",
        _LIVE,
        "Point-in-time recovery is off: what a mistake changed more than an hour ago is only in a "
        "backup.",
        "Turn it on.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "index_missing",
        _LIVE,
        "An index is missing: queries that need it fail, in production alone.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry(
        "index_building",
        _LIVE,
        "An index is being built: queries that need it fail until then.",
        "Wait; it takes minutes.",
    ),
    CodeEntry("index_broken", _LIVE, "An index could not be built.", "Delete it, and apply."),
    CodeEntry(
        "expiry_broken",
        _LIVE,
        "Firestore could not have the entries of the ledger expire.",
        "Take the expiry away, and apply.",
    ),
    CodeEntry(
        "exemption_missing",
        _LIVE,
        "Fields are indexed that no one asks for: each write costs more, and slows down "
        "under load.",
        "`leasehold deploy apply`.",
    ),
    CodeEntry(
        "secret_missing",
        _LIVE,
        "A secret of a channel or a handler does not exist, or has no version that can be read: a "
        "deploy of the function fails.",
        "Add a version.",
    ),
)
