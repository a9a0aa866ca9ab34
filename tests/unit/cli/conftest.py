"""Runs in each state, as the tests of the lifecycle have them."""

from __future__ import annotations

from tests.unit.domain.conftest import at, rules, runs

__all__ = ["at", "rules", "runs"]
