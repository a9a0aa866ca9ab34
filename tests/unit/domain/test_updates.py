"""What type checkers let `with_` replace is what the models have: no field more, none less."""

from __future__ import annotations

import inspect

import pytest

from leasehold.domain import manifest, updates
from leasehold.domain.manifest import Stored


@pytest.mark.parametrize("name", ["Lease", "Dispatch", "Settlement", "StepRecord", "ErrorRecord",
                                  "Manifest"])  # fmt: skip
def test_an_update_has_the_fields_of_its_model_and_their_types(name: str) -> None:
    update, model = getattr(updates, f"{name}Update"), getattr(manifest, name)

    allowed = {field: ref.__forward_arg__ for field, ref in update.__annotations__.items()}

    own = {field: model.__annotations__[field] for field in model.model_fields}
    assert allowed == own


def test_every_update_is_of_a_stored_model() -> None:
    names = [name for name, _ in inspect.getmembers(updates, inspect.isclass) if name[0] != "T"]

    models = [getattr(manifest, name.removesuffix("Update")) for name in names]
    assert len(models) == 6
    assert all(issubclass(model, Stored) for model in models)
