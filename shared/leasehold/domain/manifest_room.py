"""How much of its run's values a manifest holds: the rest goes to the artifact store.

With what else stands in it a manifest stays below 256 KiB, so that it can always be written once
more, if only to give the run up.
"""

from __future__ import annotations

from typing import Final

#: Larger texts go to the artifact store, by reference.
INLINE_BYTES: Final = 32 * 1024
#: All texts of one manifest together.
TEXT_BYTES: Final = 192 * 1024
#: Where there are more, results of calls made once are kept by reference: so there is room for all.
CALL_TEXT_BYTES: Final = 160 * 1024
#: All references to results of calls; and with them, all texts.
CALL_REFERENCE_BYTES: Final = 32 * 1024
WITH_REFERENCES_BYTES: Final = 208 * 1024


def fits_inline(size: int, *, beside: int = 0, most: int = TEXT_BYTES) -> bool:
    """Return whether a manifest has room for a text of so many bytes.

    Args:
        size: of the text.
        beside: the bytes of the texts that the manifest holds already.
        most: of all of them together.
    """
    return size <= min(INLINE_BYTES, most - beside)
