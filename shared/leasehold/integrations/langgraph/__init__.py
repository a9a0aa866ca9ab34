"""LangGraph and LangChain agents in a step: paid calls are recorded, and so are checkpoints.

An agent of `create_agent` needs a `LeaseholdMiddleware`, and a graph of your own nodes a
`LeaseholdSaver`.
"""

from __future__ import annotations

from importlib.metadata import version

from leasehold.integrations.durable import durable, warn_of_version
from leasehold.integrations.prices import Used
from leasehold.registry.extras import require_extra

require_extra("langgraph", __name__)

from leasehold.integrations.langgraph.middleware import (  # noqa: E402 - it imports the library
    LeaseholdMiddleware,
)
from leasehold.integrations.langgraph.saver import LeaseholdSaver  # noqa: E402 - as above

__all__ = ["LeaseholdMiddleware", "LeaseholdSaver", "Used", "durable"]

warn_of_version("langgraph", version("langgraph"), ("1.2",))
warn_of_version("langchain", version("langchain"), ("1.5",))
