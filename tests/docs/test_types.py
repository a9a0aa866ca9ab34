"""Whoever pastes the code of the docs into a project with strict mypy is told of no error in it."""

from __future__ import annotations

import re
from pathlib import Path

import mypy.api

ROOT = Path(__file__).parents[2]


def code(page: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )


def test_the_code_of_the_pages_keeps_the_strictest_types(tmp_path: Path) -> None:
    """The page on the client has a test of its own, which says more of its types."""
    for text in code("docs/testing.md"):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    for page in ("handlers", "gates", "errors"):
        (tmp_path / f"{page}.py").write_text("\n\n".join(code(f"docs/{page}.md")))
    steps, test = code("README.md")
    (tmp_path / "readme.py").write_text(steps)
    (tmp_path / "test_readme.py").write_text(test.replace("import steps", "import readme as steps"))
    settings = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache")

    said, failed, _ = mypy.api.run([*map(str, settings), str(tmp_path)])

    assert (said, failed) == ("Success: no issues found in 11 source files\n", "")
