from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.own_process import own_process


@pytest.fixture(autouse=True)
def _own_process() -> Iterator[None]:
    """Each benchmark is a program, and some have a function in their process."""
    with own_process():
        yield
