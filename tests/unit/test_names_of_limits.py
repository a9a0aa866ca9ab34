"""The name of a limit says what is limited, and in which unit: in a diff it stands alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "shared/leasehold"

#: The bare word, or an end of a range that is called neither MAX nor MIN.
_VAGUE = re.compile(
    r"_?(?:(?:MAX|MIN|LOOKS?|LOOKED_AT|WITHIN|FEW|SOME|MANY|PAGE|WIDTH|AT_MOST)(?:_S|_BYTES)?"
    r"|(?:MOST|LONGEST|SHORTEST|LARGEST|LEAST|FEWEST)(?:_[A-Z0-9_]+)?)"
)
#: A text, whose limit may be characters or bytes.
_UNITLESS = re.compile(
    r"_?M(?:AX|IN)_(?:[A-Z0-9]+_)*"
    r"(?:NAME|ID|KEY|TEXT|WORDS?|MESSAGE|DETAIL|REASON|NOTE|LINE|EXCERPT|FILE|BODY|INPUT|OUTPUT)"
)


def limits() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each number and duration at the top of a module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for line in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            if _is_limit(line.value):
                yield str(path.relative_to(PACKAGE)), line.target.id


def _is_limit(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float)
    is_span = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "timedelta"
    return is_span or isinstance(value, ast.BinOp)


def test_no_limit_has_a_name_that_could_be_that_of_any_other() -> None:
    named = list(limits())

    assert len(named) > 400
    assert [one for one in named if _VAGUE.fullmatch(one[1])] == []


def test_a_limit_of_a_text_says_whether_it_counts_characters_or_bytes() -> None:
    assert [one for one in limits() if _UNITLESS.fullmatch(one[1])] == []
