"""What type checkers let `with_` replace is what the models have: no field more, none less."""

from __future__ import annotations

import pytest

from leasehold.domain import manifest, manifest_parts


@pytest.mark.parametrize("name", ["Lease", "Dispatch", "Settlement", "StepRecord", "ErrorRecord",
                                  "Manifest"])  # fmt: skip
def test_an_update_has_the_fields_of_its_model_and_their_types(name: str) -> None:
    place = manifest if name == "Manifest" else manifest_parts
    update, model = getattr(place, f"{name}Update"), getattr(place, name)

    allowed = {field: ref.__forward_arg__ for field, ref in update.__annotations__.items()}

    own = {field: model.__annotations__[field] for field in model.model_fields}
    assert allowed == own
