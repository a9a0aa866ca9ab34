"""The entry files of a bundle against the table of functions: each row needs its file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from leasehold.deploy.tables import FILE as TABLES
from leasehold.doctor.finding import Finding
from leasehold.doctor.setup import Setup

_FOLDER: Final = Path("functions")
_TABLE: Final = Path(TABLES)
_PACKAGE: Final = Path(__file__).parents[2]
_LONGEST: Final = 1_000_000


def function_files(setup: Setup) -> Iterator[Finding]:
    """Yield what the table and the folder of a bundle do not agree on."""
    folder = setup.folder / _FOLDER
    if not (setup.folder / _TABLE).is_file():
        return  # no bundle is deployed from here
    own = {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}
    known = {path.stem: path for path in (_PACKAGE / _FOLDER).glob("*.py")}
    files = {**known, **own}
    for name in sorted(set(own) - set(setup.functions.keys())):
        message = f"{_FOLDER / name}.py has no row in {_TABLE}: it is never deployed."
        yield Finding("function_without_row", message, file=str(_FOLDER / f"{name}.py"))
    for entry in setup.functions:
        if entry.name not in files:
            message = f"{_TABLE} has a row {entry.name}, and there is no {_FOLDER}/{entry.name}.py."
            yield Finding("function_without_file", message, file=str(_TABLE))
        elif not re.search(rf"^def {entry.name}\(", _text(files[entry.name]), re.MULTILINE):
            file = f"{_FOLDER / entry.name}.py"
            message = f"It has no function {entry.name}: its deploy would fail."
            yield Finding("function_without_entry", message, file=file)


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST)
