"""What runs cost: operations as `bench/run_costs.py` counts them, times a dated table of prices.

A change of the requests of a run changes `COUNTED`: a test counts again, and the tables
of `docs/costs.md` are drawn from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from docs.markdown import table
from docs.prices import (
    ALTERNATIVES,
    CLASS_A,
    CLASS_B,
    CONDITIONS,
    CPU,
    DELETES,
    JOBS,
    LOGS,
    MEMORY,
    MESSAGES,
    PRICES,
    READS,
    REGION,
    REQUESTS,
    STEPS,
    TASKS,
    WRITES,
    Price,
)
from leasehold.deploy.resources.alert_policies import ALERTS
from leasehold.registry.function_table import FUNCTIONS
from leasehold.services.derive_budgets import READS_A_STEP


class Kind(StrEnum):
    """A resource that a service bills, or a fact beside it."""

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
        Kind.READ: 5,
        Kind.WRITE: 21,
        Kind.TRANSACTION: 1,
        Kind.TASK_CREATED: 1,
        Kind.TASK_DELIVERED: 1,
        Kind.REQUEST: 2,
        Kind.LOG_LINE: 2,
    },
    "seconds": {
        Kind.READ: 2,
        Kind.WRITE: 6,
        Kind.TRANSACTION: 1,
        Kind.TASK_CREATED: 1,
        Kind.TASK_DELIVERED: 1,
        Kind.REQUEST: 2,
        Kind.LOG_LINE: 2,
    },
    "told": {
        Kind.READ: 7,
        Kind.WRITE: 25,
        Kind.TRANSACTION: 1,
        Kind.TASK_CREATED: 1,
        Kind.TASK_DELIVERED: 1,
        Kind.MESSAGE_PUBLISHED: 1,
        Kind.MESSAGE_DELIVERED: 1,
        Kind.REQUEST: 3,
        Kind.LOG_LINE: 4,
    },
    "review": {
        Kind.READ: 10,
        Kind.WRITE: 26,
        Kind.DELETE: 5,
        Kind.TRANSACTION: 2,
        Kind.TASK_CREATED: 2,
        Kind.TASK_DELIVERED: 2,
        Kind.MESSAGE_PUBLISHED: 1,
        Kind.MESSAGE_DELIVERED: 1,
        Kind.REQUEST: 4,
        Kind.CLASS_A: 4,
        Kind.CLASS_B: 1,
        Kind.LOG_LINE: 5,
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

STEP_S: Final = 60
#: How long a step of each kind of run takes; None: as long as its agent.
_STEPS_S: Final = (STEP_S, 5, STEP_S, None)
#: Of one collection, where a field that only grows is indexed, as the time a run was created.
#: https://cloud.google.com/firestore/quotas
GROWING_WRITES_A_S: Final = 500
#: Assumed, not measured: how long a request takes that runs no step, and an idle sweep.
REQUEST_S: Final = 0.2
SWEEP_S: Final = 0.5
SWEEPS_A_MONTH: Final = 60 * 24 * 30
DERIVATIONS_A_MONTH: Final = 24 * 30

#: A request to Pub/Sub is billed as so many bytes at least; those of a log line are assumed.
_MESSAGE_BYTES: Final = 1000
_LINE_BYTES: Final = 1024

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


def usd_of(operations: Operations, *kinds: Kind) -> float:
    """Return what operations cost, of these kinds or of all, beyond what is free."""
    wanted = kinds or tuple(_BILLED)
    billed = ((operations.get(kind, 0), *_BILLED[kind]) for kind in wanted)
    return sum(price.of(count * units) for count, price, units in billed)


def compute_usd(function: str, seconds: float) -> float:
    """Return the cost of a function that answers requests for this time, one at a time."""
    row = FUNCTIONS[function]
    return CPU.of(row.cpu * seconds) + MEMORY.of(row.memory_mib / 1024 * seconds)


def region() -> str:
    """Return where the prices hold: where a build deploys to if nothing else is said."""
    return (
        f"All amounts are in USD, for `{REGION}`, the default of a build, and beyond what is free; "
        "a small installation stays within the free quotas altogether."
    )


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
    compute = [1000 * compute_usd("execute_step", STEPS * s) if s else None for s in _STEPS_S]
    whole = [
        "" if usd is None else f"**{_usd(usd + 1000 * usd_of(run))}**"
        for usd, run in zip(compute, COUNTED.values(), strict=True)
    ]
    rows += [
        ["**all of them**", *sums],
        [
            "compute of the steps",
            *("as long as its agent" if u is None else _usd(u) for u in compute),
        ],
        ["**with compute**", *whole],
    ]
    return table(["1,000 runs", *RUNS.values()], rows)


def runs_a_second() -> int:
    """Return how many short runs a second one database takes, if each write counts as growing."""
    return GROWING_WRITES_A_S // COUNTED["seconds"][Kind.WRITE]


def compute_table() -> str:
    """Return what the functions cost while they run, and the sweep that is always there."""
    sweeps = SWEEPS_A_MONTH * usd_of(IDLE_SWEEP)
    run = COUNTED["minutes"]
    further = run[Kind.REQUEST] - run[Kind.TASK_DELIVERED]
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
        ["the jobs of Cloud Scheduler, for sweeps and for limits", _usd(JOBS.of(2))],
        [
            f"a month of limits for a step: {DERIVATIONS_A_MONTH} x {READS_A_STEP:,} reads",
            _usd(DERIVATIONS_A_MONTH * usd_of({Kind.READ: READS_A_STEP, Kind.WRITE: 1})),
        ],
        [
            f"a month of {len(ALERTS)} alerts, 1 condition each",
            _usd(CONDITIONS.of(len(ALERTS))),
        ],
    ]
    return table(["what", "beyond what is free"], rows)


def in_one_line() -> str:
    """Return ours with its compute beside what others bill for the same steps without theirs."""
    compute = 1000 * compute_usd("execute_step", STEPS * STEP_S)
    ours = 1000 * usd_of(COUNTED["minutes"])
    others = [it.price.of(1000 * it.units) for it in ALTERNATIVES]
    return (
        f"**1,000 runs of {STEPS} steps of {STEP_S} s cost {_usd(ours + compute)} here: "
        f"{_usd(compute)} of compute and {_usd(ours)} for all else; in place of the "
        f"{_usd(ours)} others bill {_usd(min(others))} to {_usd(max(others))}, and compute comes "
        "to it there too.**"
    )


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
