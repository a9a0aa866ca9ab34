"""A value of a user as a manifest has it: its text, or where that lies."""

from __future__ import annotations

from typing import Final

from leasehold.domain.stored import Stored, trusted


class KeptValue(Stored):
    """A user's value: its JSON text, or the name of the artifact that holds the text.

    `digest` is that of the text behind `ref`, where it is known: any other text is refused.
    """

    text: str | None = None
    ref: str | None = None
    digest: str | None = None


#: A `KeptValue` of a text or a name that the engine made or has read.
kept_value: Final = trusted(KeptValue)
