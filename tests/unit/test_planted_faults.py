"""The lists of planted faults fit the code: else a line that is changed takes its fault with it."""

from functools import cache
from pathlib import Path

from tools.planted_faults import Fault, read

TREE = Path(__file__).parents[2]


def test_each_fault_can_be_planted_and_names_tests_that_are_there() -> None:
    stale = [f"{fault.story}: {fault.breaks}" for fault in read([]) if not _fits(fault)]

    assert stale == [], "change their `old` and `tests` with the code: tests/planted/"


def _fits(fault: Fault) -> bool:
    can_be_planted = _text(fault.file).count(fault.old) == 1 and fault.new != fault.old
    return can_be_planted and bool(fault.tests) and all(map(_is_there, fault.tests))


def _is_there(test: str) -> bool:
    file, *names = test.partition("[")[0].split("::")
    return (TREE / file).exists() and all(f" {name}" in _text(file) for name in names)


@cache
def _text(file: str) -> str:
    return (TREE / file).read_text()
