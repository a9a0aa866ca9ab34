"""The base of all responses: what a server answers, and what its client reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ResponseModel(BaseModel):
    """A response. A client reads past fields that a later server adds."""

    model_config = ConfigDict(
        frozen=True,
        defer_build=True,  # a cold start builds what it uses
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
    )
