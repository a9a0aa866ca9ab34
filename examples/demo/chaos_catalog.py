"""What `make demo CHAOS=1` runs: the steps of the demo, the last of which hangs once."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from examples.demo import catalog as demo_catalog
from examples.demo.hanging_publish import LIMIT
from leasehold import Registry, RetryPolicy

#: The step that hangs: it asks no agent, so its limit can be short, however large the folder is.
HANGING: Final = "publish"

CHANNELS: Final = demo_catalog.CHANNELS
GATES: Final = demo_catalog.GATES
PIPELINES: Final = demo_catalog.PIPELINES
STEPS: Final = Registry(
    "dispatch",
    [
        replace(
            step,
            handler="examples.demo.hanging_publish:publish",
            agent_timeout=LIMIT,
            cleanup_ttl=timedelta(seconds=1),
            retry=RetryPolicy(first=timedelta(seconds=1)),
        )
        if step.step_type == HANGING
        else step
        for step in demo_catalog.STEPS
    ],
)
