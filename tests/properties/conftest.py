"""How many examples: few and always the same in the gate, many and new ones in a storm.

`LEASEHOLD_STORM=1 pytest tests/properties` runs the storm; it takes minutes.
"""

import os

from hypothesis import settings

settings.register_profile(
    "gate",
    max_examples=160,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    database=None,
)
settings.register_profile(
    "storm",
    max_examples=int(os.environ.get("LEASEHOLD_STORM_EXAMPLES", "6000")),
    stateful_step_count=80,
    deadline=None,
    print_blob=True,
)
settings.load_profile("storm" if os.environ.get("LEASEHOLD_STORM") == "1" else "gate")
