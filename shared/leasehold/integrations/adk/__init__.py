"""Agents of Google's Agent Development Kit in a step: model calls, tools and sessions are recorded.

```python
async def research(ctx: StepContext, given: Question) -> Answer:
    runner = Runner(app_name="research", agent=agent, session_service=sessions)
    with durable(ctx, runner):
        async for event in runner.run_async(user_id=…, session_id=…, new_message=…):
            …
```
"""

from leasehold.registry.extras import require_extra

require_extra("adk", __name__)

from leasehold.integrations.adk.plugin import durable  # noqa: E402 - it imports the library
from leasehold.integrations.prices import Used  # noqa: E402 - as above

__all__ = ["Used", "durable"]
