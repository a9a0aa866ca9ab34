"""No deployed function is public, and no account gets every permission."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Commands and grants by which a service is public, or an account may do everything.
WIDE = re.compile(
    r"roles/(?:owner|editor|\*)"
    r"|(?<!-no)--allow-unauthenticated"
    r"|--no-invoker-iam-check|invoker_iam_disabled\s*[=:]\s*[Tt]rue|invoker-iam-disabled.*true"
    r"|(?:member\S*|role)(?! ==)[\s=:'\"\[]+(?:allUsers|allAuthenticatedUsers|\*)"
)
_CODE = re.compile(r"^ *```.*?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield what is run or deployed; of a page, what a reader pastes."""
    yield from ((file, file.read_text()) for file in ROOT.glob("*.yaml"))
    yield ROOT / "Makefile", (ROOT / "Makefile").read_text()
    for folder in ("shared", "pipelines", "examples", "tools"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".py", ".yaml", ".yml", ".json", ".sh", ".toml"}:
                yield file, file.read_text()
    for page in (*ROOT.glob("*.md"), *ROOT.joinpath("docs").rglob("*.md")):
        yield page, "\n".join(_CODE.findall(page.read_text()))


def test_no_file_makes_anything_public_or_grants_everything() -> None:
    found = [
        (str(file.relative_to(ROOT)), it[0]) for file, text in texts() for it in WIDE.finditer(text)
    ]

    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "gcloud functions deploy x --allow-unauthenticated",
        "--allow-unauthenticated",
        "--member=allUsers --role=roles/run.invoker",
        'members: ["allAuthenticatedUsers"]',
        "--role roles/owner",
        '"role": "roles/editor"',
        "gcloud run deploy x --no-invoker-iam-check",
        "service.invoker_iam_disabled = True",
        'member="*"',
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert WIDE.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "--no-allow-unauthenticated",
        "roles/run.invoker",
        "--invoker-iam-check",
        'if member == "allUsers":',  # it looks for one
    ],
)
def test_others_are_not(line: str) -> None:
    assert not WIDE.search(line)
