"""Keys of calls that all integrations share, and what each says whose library is missing."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from leasehold import integrations
from leasehold.domain.recorded_calls import MAX_CALL_KEY_CHARS
from leasehold.errors import MissingExtraError
from leasehold.integrations.durable import key_of
from leasehold.integrations.scope import entered, scope_of_run
from leasehold.testing import step_context

NAMES = [module.name for module in pkgutil.iter_modules(integrations.__path__) if module.ispkg]


@pytest.mark.parametrize("name", NAMES)
def test_an_integration_without_its_library_says_which_extra_to_install(name: str) -> None:
    """None of these libraries is in the environment of these tests."""
    extra = name.replace("_", "-")

    with pytest.raises(MissingExtraError) as refused:
        importlib.import_module(f"leasehold.integrations.{name}")

    assert f"[{extra}]" in str(refused.value)


def test_each_call_has_its_own_key_however_long_its_name_is() -> None:
    long = "x" * MAX_CALL_KEY_CHARS
    names = [("a", "b"), ("a/b",), (long,), (long, "a"), (long, "b"), ("a\n",), ("a?",)]

    keys = [key_of(*name) for name in names]

    assert keys[:2] == ["a/b", "a_b"]
    assert len(set(keys)) == len(keys)
    assert all(key.isprintable() and len(key) <= MAX_CALL_KEY_CHARS for key in keys)


def test_a_run_of_an_agent_is_named_after_its_input_whenever_it_begins() -> None:
    """Agents at work at once begin in any order, and the fields of an input come in any order."""

    def places(*inputs: object) -> list[tuple[str, ...]]:
        with step_context() as ctx, entered(ctx, None, None) as block:
            return [scope_of_run(block, "agent", given).place for given in inputs]

    first = places({"page": 1, "of": "a"}, {"page": 2, "of": "a"}, "Go")
    later = places("Go", {"of": "a", "page": 2}, {"of": "a", "page": 1})

    assert later == first[::-1]
    assert len(set(first)) == 3
