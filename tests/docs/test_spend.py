"""The code on the page about spend runs unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from leasehold.domain.spend import Spend
from leasehold.testing import step_context

PAGE = (Path(__file__).parents[2] / "docs/spend.md").read_text()


def test_the_handler_of_the_page_spends_what_its_calls_cost() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    page: dict[str, Any] = {}
    exec(code, page)  # noqa: S102 - our own docs

    with step_context() as ctx:
        made = page["summarize"](ctx, {"pages": ["one", "two"]})

    assert made == ["ONE", "TWO"]
    assert ctx.recorded.spent == Spend(tokens=1600, usd=0.008)
