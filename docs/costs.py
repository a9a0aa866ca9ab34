"""What runs cost: operations as `bench/run_costs.py` counts them, times a dated table of prices.

Whoever changes what a run asks of a service changes `COUNTED`: a test counts again, and the tables
of `docs/costs.md` are drawn from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from docs.markdown import table
from leasehold.registry.function_table import FUNCTIONS


class Kind(StrEnum):
    """What a service bills, or what is good to know beside it."""

    READ = "document reads"
    WRITE = "document writes"
    DELETE = "document deletes"
    TRANSACTION = "transactions"
    TASK_CREATED = "tasks created"
    TASK_DELIVERED = "tasks delivered"
    MESSAGE_PUBLISHED = "messages published"
    MESSAGE_DELIVERED = "messages delivered"
    REQUEST = "requests of functions"
    CLASS_A = "storage operations, class A"
    CLASS_B = "storage operations, class B"
    LOG_LINE = "log lines"


Operations = Mapping[Kind, int]

#: What one run takes that is not the first one of its process, from its start to its archive.
COUNTED: Final[Mapping[str, Operations]] = {
    "minutes": {
        Kind.READ: 7,
        Kind.WRITE: 24,
        Kind.TRANSACTION: 3,
        Kind.TASK_CREATED: 3,
        Kind.TASK_DELIVERED: 3,
        Kind.REQUEST: 4,
        Kind.CLASS_A: 1,
        Kind.LOG_LINE: 4,
    },
    "seconds": {
        Kind.READ: 4,
        Kind.WRITE: 9,
        Kind.TRANSACTION: 3,
        Kind.TASK_CREATED: 3,
        Kind.TASK_DELIVERED: 3,
        Kind.REQUEST: 4,
        Kind.CLASS_A: 1,
        Kind.LOG_LINE: 4,
    },
    "told": {
        Kind.READ: 9,
        Kind.WRITE: 28,
        Kind.TRANSACTION: 3,
        Kind.TASK_CREATED: 3,
        Kind.TASK_DELIVERED: 3,
        Kind.MESSAGE_PUBLISHED: 1,
        Kind.MESSAGE_DELIVERED: 1,
        Kind.REQUEST: 5,
        Kind.CLASS_A: 1,
        Kind.LOG_LINE: 6,
    },
    "review": {
        Kind.READ: 6,
        Kind.WRITE: 26,
        Kind.TRANSACTION: 4,
        Kind.TASK_CREATED: 4,
        Kind.TASK_DELIVERED: 4,
        Kind.MESSAGE_PUBLISHED: 1,
        Kind.MESSAGE_DELIVERED: 1,
        Kind.REQUEST: 6,
        Kind.CLASS_A: 4,
        Kind.CLASS_B: 1,
        Kind.LOG_LINE: 7,
    },
}
IDLE_SWEEP: Final[Operations] = {Kind.READ: 33, Kind.REQUEST: 1, Kind.LOG_LINE: 2}

#: The runs, in words.
RUNS: Final[Mapping[str, str]] = {
    "minutes": "3 steps of 60 s",
    "seconds": "3 steps of 5 s",
    "told": "3 steps of 60 s, 1 channel told",
    "review": "review pipeline, 4 steps, 1 channel",
}

STEPS: Final = 3
STEP_S: Final = 60
#: Assumed, not measured: how long a request takes that runs no step, and an idle sweep.
REQUEST_S: Final = 0.2
SWEEP_S: Final = 0.5
SWEEPS_A_MONTH: Final = 60 * 24 * 30

_VENDOR: Final = "vendor's page"
_QUOTED: Final = "quoted"
_READ_ON: Final = "2026-11-22"


@dataclass(frozen=True, slots=True)
class Price:
    """A list price in USD.

    Args:
        what: what is billed.
        usd: the price.
        unit: of so many.
        per: the words of the unit.
        free: what is free.
        url: the vendor's page.
        evidence: whether the price was read there, in a stored copy, or is quoted by others.
        date: when it was read, or by whom it was quoted dates it.
    """

    what: str
    usd: float
    unit: float
    per: str
    free: str
    url: str
    evidence: str
    date: str

    def of(self, count: float) -> float:
        """Return what so many cost."""
        return count * self.usd / self.unit


_FIRESTORE: Final = "https://cloud.google.com/firestore/pricing"
_RUN: Final = "https://cloud.google.com/run/pricing"
_STORAGE: Final = "https://cloud.google.com/storage/pricing-examples"
_TIB: Final = 2.0**40
_GIB: Final = 2.0**30
_MESSAGE_BYTES: Final = 1000  # a request is billed as so many at least
_LINE_BYTES: Final = 1024  # assumed

READS: Final = Price(
    *("Firestore, one region: reads", 0.03, 100_000, "100,000"),
    *("50,000 a day, of one database", _FIRESTORE, _QUOTED, "2026-10-08"),
)
WRITES: Final = Price(
    *("Firestore, one region: writes", 0.09, 100_000, "100,000"),
    *("20,000 a day, of one database", _FIRESTORE, _QUOTED, "2026-10-08"),
)
DELETES: Final = Price(
    *("Firestore, one region: deletes", 0.01, 100_000, "100,000"),
    *("20,000 a day, of one database", _FIRESTORE, _QUOTED, "2026-10-08"),
)
TASKS: Final = Price(
    *("Cloud Tasks: calls and deliveries", 0.40, 1_000_000, "million"),
    *("1 million a month", "https://cloud.google.com/tasks/pricing", _VENDOR, _READ_ON),
)
MESSAGES: Final = Price(
    *("Pub/Sub: bytes published and delivered, 1,000 a request at least", 40.0, _TIB, "TiB"),
    *("10 GiB a month", "https://cloud.google.com/pubsub/pricing", _VENDOR, _READ_ON),
)
REQUESTS: Final = Price(
    *("Cloud Run: requests", 0.40, 1_000_000, "million"),
    *("2 million a month", _RUN, _QUOTED, "2026"),
)
CPU: Final = Price(
    *("Cloud Run: vCPU seconds, while a request runs", 0.000024, 1, "second"),
    *("180,000 a month", _RUN, _VENDOR, _READ_ON),
)
MEMORY: Final = Price(
    *("Cloud Run: GiB seconds, while a request runs", 0.0000025, 1, "second"),
    *("360,000 a month", _RUN, _QUOTED, "2026"),
)
CLASS_A: Final = Price(
    *("Cloud Storage: class A operations (puts, lists)", 0.005, 1000, "1,000"),
    *("5,000 a month, in some regions", _STORAGE, _VENDOR, _READ_ON),
)
CLASS_B: Final = Price(
    *("Cloud Storage: class B operations (gets)", 0.0004, 1000, "1,000"),
    *("50,000 a month, in some regions", _STORAGE, _VENDOR, _READ_ON),
)
LOGS: Final = Price(
    *("Cloud Logging: bytes stored", 0.50, _GIB, "GiB"),
    *("50 GiB a month", "https://cloud.google.com/stackdriver/pricing", _QUOTED, "2026"),
)
JOBS: Final = Price(
    *("Cloud Scheduler: a job", 0.10, 1, "month"),
    *("3 jobs", "https://cloud.google.com/scheduler/pricing", _VENDOR, _READ_ON),
)
PRICES: Final = (
    *(READS, WRITES, DELETES, TASKS, MESSAGES, REQUESTS),
    *(CPU, MEMORY, CLASS_A, CLASS_B, LOGS, JOBS),
)

#: The price of each kind, and how many of its units one is; a transaction has none of its own.
_BILLED: Final[Mapping[Kind, tuple[Price, int]]] = {
    Kind.READ: (READS, 1),
    Kind.WRITE: (WRITES, 1),
    Kind.DELETE: (DELETES, 1),
    Kind.TASK_CREATED: (TASKS, 1),
    Kind.TASK_DELIVERED: (TASKS, 1),
    Kind.MESSAGE_PUBLISHED: (MESSAGES, _MESSAGE_BYTES),
    Kind.MESSAGE_DELIVERED: (MESSAGES, _MESSAGE_BYTES),
    Kind.REQUEST: (REQUESTS, 1),
    Kind.CLASS_A: (CLASS_A, 1),
    Kind.CLASS_B: (CLASS_B, 1),
    Kind.LOG_LINE: (LOGS, _LINE_BYTES),
}

#: The services, as a bill has them.
_SERVICES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "Firestore": (Kind.READ, Kind.WRITE, Kind.DELETE),
    "Cloud Tasks": (Kind.TASK_CREATED, Kind.TASK_DELIVERED),
    "Pub/Sub": (Kind.MESSAGE_PUBLISHED, Kind.MESSAGE_DELIVERED),
    "Cloud Run: requests": (Kind.REQUEST,),
    "Cloud Storage": (Kind.CLASS_A, Kind.CLASS_B),
    "Cloud Logging": (Kind.LOG_LINE,),
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """What another service bills for the steps alone.

    Args:
        price: of its unit.
        units: how many of them a run of three steps takes, at least.
        why: how they are counted.
        besides: what is paid besides.
    """

    price: Price
    units: int
    why: str
    besides: str


ALTERNATIVES: Final = (
    Alternative(
        Price(
            *("AWS Step Functions Standard", 0.025, 1000, "1,000 transitions"),
            *("4,000 a month", "https://aws.amazon.com/step-functions/pricing/"),
            *(_VENDOR, _READ_ON),
        ),
        STEPS,
        "1 transition a step; each retry is one more",
        "what the steps run on",
    ),
    Alternative(
        Price(
            *("AWS Lambda durable functions", 8.0, 1_000_000, "million operations"),
            *("none known", "https://aws.amazon.com/lambda/pricing/", _QUOTED, "2026-09-20"),
        ),
        STEPS + 1,
        "the start, and 1 operation a step",
        "requests and compute of Lambda, data written and kept",
    ),
    Alternative(
        Price(
            *("Google Workflows", 0.01, 1000, "1,000 internal steps"),
            *("5,000 a month", "https://cloud.google.com/workflows/pricing", _QUOTED, "2026"),
        ),
        STEPS,
        "1 internal step a call of a function; assignments and conditions are further ones",
        "the functions that it calls",
    ),
    Alternative(
        Price(
            *("Temporal Cloud", 50.0, 1_000_000, "million actions"),
            "1 million a month are part of the smallest plan",
            "https://docs.temporal.io/cloud/pricing",
            *(_VENDOR, _READ_ON),
        ),
        STEPS + 1,
        "the start of the workflow, and 1 action an activity; each heartbeat that gets through is "
        "one more",
        "a plan, from $100 a month; your own workers; storage",
    ),
    Alternative(
        Price(
            *("Inngest", 50.0, 1_000_000, "million executions"),
            "50,000 a month; 1 million in the Pro plan",
            *("https://www.inngest.com/pricing", _QUOTED, "2026"),
        ),
        STEPS + 1,
        "the run, and 1 execution a step",
        "a plan, $75 to $99 a month; what the steps run on",
    ),
    Alternative(
        Price(
            *("Trigger.dev", 0.25, 10_000, "10,000 runs"),
            *("$5 a month", "https://trigger.dev/docs/run-usage", _VENDOR, _READ_ON),
        ),
        STEPS + 1,
        "1 run for the pipeline, and 1 for each step that is retried by itself",
        "its compute; a plan, from $10 a month",
    ),
)


def usd_of(operations: Operations, *kinds: Kind) -> float:
    """Return what operations cost, of these kinds or of all, beyond what is free."""
    wanted = kinds or tuple(_BILLED)
    billed = ((operations.get(kind, 0), *_BILLED[kind]) for kind in wanted)
    return sum(price.of(count * units) for count, price, units in billed)


def compute_usd(function: str, seconds: float) -> float:
    """Return what a function costs that answers requests for so long, one at a time."""
    row = FUNCTIONS[function]
    return CPU.of(row.cpu * seconds) + MEMORY.of(row.memory_mib / 1024 * seconds)


def operations_table() -> str:
    """Return what one run takes, and an idle sweep."""
    columns = [*COUNTED.values(), IDLE_SWEEP]
    heads = ["operations", *RUNS.values(), "a sweep with nothing due"]
    rows = [[kind.value, *(str(column.get(kind, 0)) for column in columns)] for kind in Kind]
    return table(heads, rows)


def per_thousand_table() -> str:
    """Return what 1,000 runs cost, by service."""
    rows = [
        [service, *(_usd(1000 * usd_of(run, *kinds)) for run in COUNTED.values())]
        for service, kinds in _SERVICES.items()
    ]
    sums = [f"**{_usd(1000 * usd_of(run))}**" for run in COUNTED.values()]
    return table(["1,000 runs", *RUNS.values()], [*rows, ["**all of them**", *sums]])


def compute_table() -> str:
    """Return what the functions cost while they run, and the sweep that is always there."""
    sweeps = SWEEPS_A_MONTH * usd_of(IDLE_SWEEP)
    further = COUNTED["minutes"][Kind.REQUEST] - STEPS
    rows = [
        [
            f"1,000 runs of {STEPS} steps: `execute_step`, {STEPS} x {STEP_S} s",
            _usd(1000 * compute_usd("execute_step", STEPS * STEP_S)),
        ],
        [
            f"their starts: `serve_api`, {further} x {REQUEST_S} s",
            _usd(1000 * compute_usd("serve_api", further * REQUEST_S)),
        ],
        [
            f"a month of sweeps with nothing due: {SWEEPS_A_MONTH:,} x {SWEEP_S} s",
            _usd(compute_usd("sweep_dead_letters", SWEEPS_A_MONTH * SWEEP_S)),
        ],
        [f"the same: {SWEEPS_A_MONTH:,} x the operations above", _usd(sweeps)],
        ["the same: 1 job of Cloud Scheduler", _usd(JOBS.of(1))],
    ]
    return table(["what", "beyond what is free"], rows)


def alternatives_table() -> str:
    """Return what others bill for 1,000 runs of three steps, without compute, beside ours."""
    ours = [
        [
            f"**Leasehold on Google Cloud**, {RUNS[run]}",
            f"**{_usd(1000 * usd_of(COUNTED[run]))}**",
            f"counted, see above: API, archive and logs are in it{also}",
            "compute; the sweep, where the free quotas do not last",
            "see below",
            "this page",
        ]
        for run, also in (("seconds", ""), ("minutes", ", and 15 renewals of leases"))
    ]
    rows = [
        [
            it.price.what,
            _usd(it.price.of(1000 * it.units)),
            f"{it.units} x {_price(it.price.usd)} per {it.price.per}: {it.why}",
            it.besides,
            it.price.free,
            _source(it.price),
        ]
        for it in ALTERNATIVES
    ]
    heads = ["1,000 runs of 3 steps, without compute", "USD", "arithmetic", "besides", "free"]
    return table([*heads, "source"], [*ours, *rows])


def prices_table() -> str:
    """Return the prices."""
    heads = ["what", "USD", "per", "free", "source"]
    rows = [[it.what, _price(it.usd), it.per, it.free, _source(it)] for it in PRICES]
    return table(heads, rows)


def _source(price: Price) -> str:
    return f"[{price.evidence}, {price.date}]({price.url})"


def _price(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 0.1 else f"${usd:.7f}".rstrip("0")  # noqa: PLR2004 - dimes


def _usd(amount: float) -> str:
    """Return an amount: cents, and of a small one two digits that count."""
    if amount == 0:
        return "$0"
    places = 2
    while round(amount, places) < 10 ** (1 - places) and places < 6:  # noqa: PLR2004 - enough
        places += 1
    return f"${amount:.{places}f}"
