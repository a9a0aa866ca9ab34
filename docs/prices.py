"""List prices in USD of the default region, each with its source and date, and what others bill.

Cloud Run has the same prices in all regions of its first tier, of which europe-west1 is one:
https://cloud.google.com/functions/docs/locations. Operations of Cloud Storage in one region,
Cloud Tasks, Pub/Sub, Cloud Logging and Cloud Scheduler have one price for all regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leasehold.cli.deploy.cloudbuild import REGION as BUILD_REGION

#: Where the prices hold.
REGION: Final = BUILD_REGION

#: The pipeline that is compared.
STEPS: Final = 3

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

READS: Final = Price(
    *("Firestore, one region: reads", 0.033, 100_000, "100,000"),
    *("50,000 a day, of one database", _FIRESTORE, _QUOTED, "2026-09-30"),
)
WRITES: Final = Price(
    *("Firestore, one region: writes", 0.099, 100_000, "100,000"),
    *("20,000 a day, of one database", _FIRESTORE, _QUOTED, "2026-09-30"),
)
DELETES: Final = Price(
    *("Firestore, one region: deletes", 0.011, 100_000, "100,000"),
    *("20,000 a day, of one database", _FIRESTORE, _QUOTED, "2026-09-30"),
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
    *("2 million a month", _RUN, _QUOTED, "2026-09-30"),
)
CPU: Final = Price(
    *("Cloud Run: vCPU seconds, while a request runs", 0.000024, 1, "second"),
    *("180,000 a month", _RUN, _VENDOR, _READ_ON),
)
MEMORY: Final = Price(
    *("Cloud Run: GiB seconds, while a request runs", 0.0000025, 1, "second"),
    *("360,000 a month", _RUN, _QUOTED, "2026-09-30"),
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
CONDITIONS: Final = Price(
    *("Cloud Monitoring: a condition of an alert policy", 0.10, 1, "month"),
    *("none known", "https://cloud.google.com/stackdriver/pricing", _QUOTED, "2026"),
)
PRICES: Final = (
    *(READS, WRITES, DELETES, TASKS, MESSAGES, REQUESTS),
    *(CPU, MEMORY, CLASS_A, CLASS_B, LOGS, JOBS, CONDITIONS),
)


@dataclass(frozen=True, slots=True)
class Alternative:
    """The bill of another service for the steps alone.

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
