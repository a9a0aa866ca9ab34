"""The machine's clock: no two ids are the same."""

import os
import re

from leasehold.adapters.clock import SystemClock


def test_ids_are_random_digits_and_differ() -> None:
    clock = SystemClock()

    ids = [clock.new_id() for _ in range(1000)]

    assert len(set(ids)) == 1000
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in ids)


def test_a_forked_process_gives_out_ids_of_its_own() -> None:
    """Ids are drawn many at a time; those that its parent has left are its parent's."""
    clock = SystemClock()
    clock.new_id()
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        os.write(writer, clock.new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    given_there = os.read(reader, 16).decode()
    os.close(reader)
    os.close(writer)

    assert len(given_there) == 16
    assert given_there not in {clock.new_id() for _ in range(200)}
