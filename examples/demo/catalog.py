"""What `make demo` runs: the steps of the bundle, one of which waits to be killed in its middle."""

from dataclasses import replace
from typing import Final

from leasehold import Registry
from pipelines import catalog

#: The step whose worker is killed.
SUPERVISED: Final = "review"

CHANNELS: Final = catalog.CHANNELS
GATES: Final = catalog.GATES
PIPELINES: Final = catalog.PIPELINES
STEPS: Final = Registry(
    "dispatch",
    [
        replace(step, handler="examples.demo.awaited_review:supervise")
        if step.step_type == SUPERVISED
        else step
        for step in catalog.STEPS
    ],
)
