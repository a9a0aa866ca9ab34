"""How much a caller may give and ask for, whichever way the call comes: each limit stands here."""

from __future__ import annotations

from typing import Final

from leasehold.domain.step_pause import MAX_WHY_CHARS

#: The most runs in one page of a list, and the most that one batch changes.
MAX_PAGE_ITEMS: Final = 1000
#: How many runs a page has where the caller does not say.
DEFAULT_PAGE_ITEMS: Final = 50

#: The bytes of a file that a remote worker stores or reads with one call: in base64, and with
#: the JSON around it, it stays below the 32 MiB that Google's servers take.
MAX_FILE_BYTES: Final = 16 * 1024 * 1024

#: How many files a run may be started with; together they may have MAX_FILE_BYTES.
MAX_INPUT_FILES: Final = 16

#: Characters of an idempotency key.
MAX_IDEMPOTENCY_KEY_CHARS: Final = 256
#: Labels of a run, and characters of a label's key and of its value.
MAX_LABELS: Final = 16
MAX_LABEL_CHARS: Final = 64

#: How often a run may have its failed attempts repeated.
MAX_RETRIES: Final = 1000

#: Characters of the reason for an operation, and for a pause or an override.
MAX_REASON_CHARS: Final = MAX_WHY_CHARS
#: Bytes of a note for the handler, and what it may be.
MAX_NOTE_BYTES: Final = 4096
NOTE: Final = f"a text of 1 to {MAX_NOTE_BYTES} bytes, of printable characters and newlines"
#: Characters of who asks for it.
MAX_ACTOR_CHARS: Final = 200

#: Characters of a name: of a step, a worker, a lease, a phase.
MAX_NAME_CHARS: Final = 128

#: Every store keeps a whole number of 64 bits.
MAX_INTEGER: Final = 2**63 - 1


def is_note(text: str) -> bool:
    """Return whether a text can be a note for the handler."""
    is_clean = text.replace("\n", "").replace("\t", "").isprintable()
    return bool(text.strip()) and is_clean and len(text.encode()) <= MAX_NOTE_BYTES
