"""For tests of your own pipelines: the engine in the test's process, and time that stands still.

```python
with InProcessEngine(STEPS, PIPELINES, clock=FrozenClock(), workers=0, environ=env) as engine:
    run = engine.start("review", {"folder": "docs"})
    engine.run_until_idle()
```
"""

from leasehold.in_process import InProcessEngine
from leasehold.testing.clock import FrozenClock

__all__ = ["FrozenClock", "InProcessEngine"]
