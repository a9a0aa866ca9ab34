"""The test kit for pipelines: an engine with a controlled clock, and faults that a test injects.

```python
with step_context(attempt=2) as ctx:
    assert extract(ctx, Folder(path="docs")).pages == 3

with testing.engine("catalog", tmp_path) as engine:
    engine.faults.kill_at_checkpoint("extract", n=2)
    run = engine.start("review", {"folder": "docs"})
    assert engine.run_until_settled(run.run_id).status == "COMPLETED"
```
"""

from leasehold.bootstrap import system_clock
from leasehold.testing.clock import FrozenClock
from leasehold.testing.contexts import (
    Recorded,
    RecordingContext,
    RecordingGateContext,
    gate_context,
    step_context,
)
from leasehold.testing.faults import Faults
from leasehold.testing.in_process import InProcessEngine, engine
from leasehold.testing.remote_worker import RemoteFiles, RemoteStep

__all__ = [
    "Faults",
    "FrozenClock",
    "InProcessEngine",
    "Recorded",
    "RecordingContext",
    "RecordingGateContext",
    "RemoteFiles",
    "RemoteStep",
    "engine",
    "gate_context",
    "step_context",
    "system_clock",
]
