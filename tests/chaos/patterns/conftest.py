from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Its engines set what their handlers read; the tests after it are not to have that."""
    with patch.dict(os.environ):
        yield
