"""Agents of Pydantic AI in a step: requests to models and calls of tools are recorded.

```python
agent = Agent("openai:gpt-5", name="researcher", capabilities=[LeaseholdDurability()])


async def research(ctx: StepContext, data: Question) -> Answer:
    with durable(ctx):
        result = await agent.run(data.text)
    return Answer(text=result.output)
```
"""

from importlib.metadata import version

from leasehold.integrations.durable import durable, warn_of_version
from leasehold.integrations.prices import Used
from leasehold.registry.extras import require_extra

require_extra("pydantic-ai", __name__)

from leasehold.integrations.pydantic_ai.durability import (  # noqa: E402 - it imports the library
    LeaseholdDurability,
)

#: The versions that the gate tests.
TESTED = ("2.68",)

warn_of_version("pydantic-ai-slim", version("pydantic-ai-slim"), TESTED)

__all__ = ["LeaseholdDurability", "Used", "durable"]
