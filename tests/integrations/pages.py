"""The code that docs/agents.md has for a library."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from tests.worlds.processes import run_to_end
from tests.worlds.warm_starts import PLAIN_PYTEST

_PAGE: Final = Path(__file__).parents[2] / "docs/agents.md"
_FILE: Final = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_files(library: str, folder: Path) -> list[str]:
    """Write the files that the section of a library shows; return their names."""
    _, _, rest = _PAGE.read_text().partition(f"\n## {library}\n")
    section, _, _ = rest.partition("\n## ")
    files = _FILE.findall(section)
    for name, text in files:
        (folder / name).write_text(text)
    return [name for name, _ in files]


def output_of_tests(folder: Path) -> str:
    """Return what the tests in a folder print, without a warning among them."""
    options = ["-q", "-W", "error", "-p", "no:cacheprovider"]
    done = run_to_end([sys.executable, *PLAIN_PYTEST, *options], cwd=folder)
    assert done.returncode == 0, done.stdout
    return done.stdout
