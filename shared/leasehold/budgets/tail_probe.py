"""Tail probes: 1 attempt in 50 runs under the longest limit of the ladder.

A limit hides what it clips. The attempts that it does not clip show how long the longest ones take,
so that the estimates need not guess beyond it. This module is on the way of each dispatch: it
imports nothing of the estimates.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

#: One attempt in this many is a tail probe.
PROBE_EVERY: Final = 50


def is_tail_probe(run_id: str, step: str, attempt: int = 1, every: int = PROBE_EVERY) -> bool:
    """Return whether this attempt is a tail probe: the same answer each time it is asked.

    Args:
        run_id: the run.
        step: its step.
        attempt: 1 for the first attempt of the step; a retry is chosen anew.
        every: one attempt in this many is chosen.
    """
    digest = blake2b(f"{run_id}\n{step}\n{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % every == 0
