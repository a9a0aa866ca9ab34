"""The codes of the doctor's findings; docs/doctor.md has them as a table.

A finding of `leasehold check` has the code of its error (docs/errors.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leasehold.doctor.finding import CodeEntry, Kind, Scope
from leasehold.registry.registry import Registry

# The codes of findings in an installation.


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


# The codes of findings on this machine.


_HERE = Scope.HERE

LOCAL_CODES: Final[Sequence[CodeEntry]] = (
    CodeEntry(
        "not_looked_at",
        _HERE,
        "A look failed, or had no answer in time; the others were made.",
        "What the line says is in the way.",
    ),
    CodeEntry(
        "environment",
        _HERE,
        "A channel of the catalog cannot be told from here, as `leasehold check` warns.",
        "What the line says, where announcements are sent.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "unread_variable",
        _HERE,
        "A variable looks like a setting and is none: a slip, or of a step that is gone. "
        "Only a warning for a `PIPELINE_…` that is like none of ours.",
        "Correct its name, or unset it.",
    ),
    CodeEntry(
        "function_timeout",
        _HERE,
        "A function has less time than a step's dispatch deadline and a minute: it is ended "
        "before it can record what became of the step.",
        "A longer `timeout` in `deployment.py`, and a deploy; or a shorter deadline.",
    ),
    CodeEntry(
        "memory_not_told",
        _HERE,
        "A step has a `memory_limit`, and this machine tells of no process how much memory it "
        "takes: nothing holds the step to it here.",
        "Run it where there is a `/proc`, as on Linux.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "reuse_not_told",
        _HERE,
        "A step has a `reuse`, and this machine does not tell what an attempt leaves in its "
        "process: each has a fresh one, and nothing is saved.",
        "Run it where there is a `/proc`, as on Linux; or leave `reuse` out.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "delivery_call_time",
        _HERE,
        "A call of `deliver_notification` may take longer than the function has.",
        "A smaller `PIPELINE_DELIVERY_CALL_S`.",
    ),
    CodeEntry(
        "override_refused",
        _HERE,
        "An override in the store does not hold: it cannot be read, breaks the time ladder, "
        "or is of a step that the catalog does not have.",
        "`leasehold override STEP --clear`, and set it anew.",
    ),
    CodeEntry(
        "live_run_misfit",
        _HERE,
        "Live runs would block at a step with this catalog: it lacks the step, the handler does "
        "not resolve, or what the run holds for it does not fit its model.",
        "Put the code right; `leasehold check --live-runs` lists the runs.",
    ),
    CodeEntry(
        "run_not_in_order",
        _HERE,
        "The [audit](operations.md#audit) finds something in runs that have an alarm, or in one "
        "of the 500 newest.",
        "`leasehold audit --repair`; one that cannot be read is left as it is.",
    ),
    CodeEntry(
        "override_over",
        _HERE,
        "The time of an override has passed.",
        "`leasehold override STEP --clear`.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "events_in_process",
        _HERE,
        "Functions without a bus: announcements wait for the next request, or the sweep.",
        "`LEASEHOLD_EVENTS=pubsub://PROJECT/TOPIC`.",
    ),
    CodeEntry(
        "function_url",
        _HERE,
        "Google's queue is told to deliver to an address of this machine.",
        "The address of `execute_step` as `LEASEHOLD_FUNCTION_URL`.",
    ),
    CodeEntry(
        "no_public_url",
        _HERE,
        "The links of announcements are paths, which lead nowhere.",
        "The address of `serve_api` as `LEASEHOLD_PUBLIC_URL`.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "local_channels",
        _HERE,
        "Functions may call addresses of private networks for a channel.",
        "Unset `LEASEHOLD_ALLOW_LOCAL_CHANNELS`.",
    ),
    CodeEntry(
        "no_isolation",
        _HERE,
        "Functions run handlers in threads, which no limit can stop.",
        "Unset `LEASEHOLD_ISOLATION`.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "python_version",
        _HERE,
        "This Python is newer than any that functions run with.",
        "Develop with one that they have.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "data_folder",
        _HERE,
        "A file is where a folder of the store or of the artifacts is to be.",
        "Move the file, or name another folder.",
    ),
    CodeEntry(
        "artifacts_away",
        _HERE,
        "The folder of the artifacts has not the mark that the store knows, as where it is not "
        "mounted or is another store's: runs that need files "
        "[wait](operations.md#when-a-store-is-down).",
        "Mount it; or, where it is lost, what the line says.",
    ),
    CodeEntry(
        "linked_folder",
        _HERE,
        "Below the folder of the artifacts stands a link, which is not followed.",
        "Move the folder back, mount it there, or name its place by `LEASEHOLD_ARTIFACTS`.",
    ),
    CodeEntry(
        "linked_log",
        _HERE,
        "What SQLite keeps beside the store, `-wal` or `-shm`, is a link: it follows none there.",
        "With no process on the store, move the file to the link's place; a link to nothing: `rm`.",
    ),
    CodeEntry(
        "not_writable",
        _HERE,
        "The store or the artifacts cannot be written by this user, often after a start as root, "
        "or their file system is mounted read-only.",
        "`chown` it to the user that runs Leasehold; or mount it for writing.",
    ),
    CodeEntry(
        "another_user",
        _HERE,
        "Root works on files of another user, who could not write what root makes.",
        "Run it as that user.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "little_space",
        _HERE,
        "Less than 200 MiB, or room for less than 1,000 files, on the disk of the data.",
        "Make room; `leasehold purge` deletes old runs.",
    ),
    CodeEntry(
        "two_folders",
        _HERE,
        "The store is at an absolute path and the artifacts are not, or the other way round: "
        "from another working folder the same runs have other files.",
        "An absolute path for both.",
    ),
    CodeEntry(
        "store_elsewhere",
        _HERE,
        "There is no store in this folder, and one in a folder above it.",
        "Work in that folder, or set `LEASEHOLD_STORE`.",
    ),
    CodeEntry(
        "network_file_system",
        _HERE,
        "The store's file is on a network file system, on whose locks SQLite cannot rely.",
        "A local disk, or a store of Firestore.",
    ),
    CodeEntry(
        "store_gone",
        _HERE,
        "The store's file is gone, and its log is still there.",
        "Bring the file back, or delete the log.",
    ),
    CodeEntry(
        "store_damaged",
        _HERE,
        "SQLite finds damaged pages in the store's file.",
        "Restore a [backup](one-machine.md#backup).",
    ),
    CodeEntry(
        "store_large",
        _HERE,
        "The store's file takes longer to check than the doctor waits.",
        "Check it by hand.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "clock",
        _HERE,
        "This machine's clock is more than 10 s off the store's, or runs are of a time to come.",
        "Set the clock by NTP.",
    ),
    CodeEntry(
        "no_server",
        _HERE,
        "Live runs wait, and no server works on their store: none noted within three minutes that "
        "it lives. Only where `LEASEHOLD_TASKS` is `in-process`.",
        "`leasehold serve`.",
    ),
    CodeEntry(
        "other_project",
        _HERE,
        "A process works on the store whose catalog has no step and no pipeline in common with "
        "the one that is set here.",
        "Its own store for each project: `LEASEHOLD_STORE`.",
    ),
    CodeEntry(
        "catalogs_differ",
        _HERE,
        "Two processes that both work for more than 15 minutes know different steps or pipelines.",
        "Restart the one that was left behind; another project needs its own store.",
        kind=Kind.WARNING,
    ),
    CodeEntry(
        "min_instances_proposed",
        _HERE,
        "Cold starts of `execute_step` were measured, in the [ledger](ledger.md), to take long "
        "and to be many: at least 20, a 95th percentile of 5 s or more, one an hour or more.",
        "A higher `min_instances` in its row of `deployment.py`, if the waits matter more "
        "than instances that are paid for while idle.",
        kind=Kind.PROPOSAL,
    ),
    CodeEntry(
        "half_emulated",
        _HERE,
        "An emulator has the runs, and Google's queue the tasks, or the other way round; with "
        "`--live`, queues are looked for at a local server and the rest at Google.",
        "Unset the variable that was left over, or set the other one too.",
    ),
    CodeEntry(
        "emulator_left_over",
        _HERE,
        "A variable of an emulator beside the settings of a deployed installation.",
        "Unset it.",
    ),
    CodeEntry(
        "emulator_silent",
        _HERE,
        "Nothing answers where a variable says that an emulator is.",
        "Start the emulator, or unset the variable.",
    ),
    CodeEntry(
        "emulator_address",
        _HERE,
        "A variable of an emulator is not an address that its client takes.",
        "`HOST:PORT`, or `http://HOST:PORT`, as the line says.",
    ),
    CodeEntry(
        "function_without_row",
        _HERE,
        "A file in `functions/` is in no row of `deployment.py`, so it is not deployed.",
        "Add its row, or delete the file.",
    ),
    CodeEntry(
        "function_without_file",
        _HERE,
        "A row of `deployment.py` has no file in `functions/`.",
        "Add the file, or delete the row.",
    ),
    CodeEntry(
        "function_without_entry",
        _HERE,
        "A file in `functions/` does not define the function that it is named after.",
        "Name the function as the file.",
    ),
)


CODES: Final = Registry("findings", [*LOCAL_CODES, *DEPLOYED_CODES])
