"""The functions of this bundle, one row each. All that is deployed follows this table.

`shared/leasehold/registry/function_table.py` is a link to this file, so `leasehold dev` and
`leasehold doctor` know the same table where only the package is installed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

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
            max_instances=3,
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
