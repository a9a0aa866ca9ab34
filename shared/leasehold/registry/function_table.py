"""What is deployed: the functions, one row each, and what they have besides.

`leasehold deploy init` writes this file as `deployment.py`, where it is yours to change. All that
is deployed follows it, and a bundle has it in place of the package's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger, Use

#: All instances together fit the 20 CPUs and 40 GiB that a new project has in a region, so that
#: steps under load leave room for the sweep, the API and the notifier.
FUNCTIONS: Final = FunctionTable(
    [
        FunctionEntry(
            "execute_step",
            "runs one attempt of one step",
            Trigger.TASKS,
            (Use.DOCUMENTS, Use.TASKS, Use.EVENTS, Use.ARTIFACTS),
            timeout=timedelta(seconds=1860),  # a minute more than the longest dispatch deadline
            memory_mib=2048,
            concurrency=1,  # an instance that runs out of memory takes no other step with it
            max_instances=12,
        ),
        FunctionEntry(
            "serve_api",
            "the runs API, for people and programs",
            Trigger.REQUESTS,
            (Use.DOCUMENTS, Use.TASKS, Use.EVENTS, Use.ARTIFACTS),
            timeout=timedelta(seconds=120),
            memory_mib=512,
            concurrency=40,
            max_instances=2,
        ),
        FunctionEntry(
            "manage_lease",
            "leases for remote workers",
            Trigger.WORKERS,
            (Use.DOCUMENTS, Use.TASKS, Use.EVENTS, Use.ARTIFACTS),
            timeout=timedelta(seconds=120),
            memory_mib=512,
            concurrency=40,
            max_instances=2,
        ),
        FunctionEntry(
            "sweep_dead_letters",
            "looks at each run whose alarm is due",
            Trigger.SCHEDULE,
            (Use.DOCUMENTS, Use.TASKS, Use.EVENTS, Use.ARTIFACTS),
            timeout=timedelta(minutes=3),  # it begins nothing in the second half of them
            memory_mib=512,
            concurrency=1,
            max_instances=1,
            schedule="* * * * *",
        ),
        FunctionEntry(
            "derive_budgets",
            "derives the limits of steps from what their attempts took",
            Trigger.SCHEDULE,
            (Use.DOCUMENTS,),
            timeout=timedelta(minutes=5),
            memory_mib=512,
            concurrency=1,
            max_instances=1,
            schedule="17 * * * *",
        ),
        FunctionEntry(
            "deliver_notification",
            "tells one channel of what happened to a run",
            Trigger.EVENTS,
            (Use.DOCUMENTS, Use.EVENTS, Use.CHANNELS),
            timeout=timedelta(minutes=2),
            memory_mib=512,
            concurrency=8,
            max_instances=2,
        ),
    ]
)

#: By the id of a queue: how many of its tasks run at once. The others share equally what is left of
#: what the function that they call does at once.
CONCURRENCY: Final[Mapping[str, int]] = {}

#: What every function has in its environment besides, by name: thresholds and limits, as
#: `"PIPELINE_MAX_RETRIES": "3"`, and what your own code reads. No secrets: those are named in
#: `secrets` of a row.
VARIABLES: Final[Mapping[str, str]] = {}

#: Further extras of leasehold that the pipelines need, as `"llm"`.
EXTRAS: Final[Sequence[str]] = ()

#: Which run a build starts in the end to see that all of it works: a pipeline and its input, as
#: `("summary", {"text": "One. Two."})`; None: it starts none.
SMOKE: Final[tuple[str, Any] | None] = None
