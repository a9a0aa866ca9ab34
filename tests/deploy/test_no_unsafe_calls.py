"""Unsafe calls that ruff's rules leave out, or that a comment could allow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("shared", "pipelines", "tools")
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]

#: Modules that run what they read.
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "xmlrpc"}
CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
    "ssl._create_unverified_context",
}
KEYWORDS = {("shell", True), ("verify", False), ("check_hostname", False)}
_LOADS = {"load", "load_all", "unsafe_load", "full_load"}
#: A text without any of these names has none of it: few have, and to parse all takes seconds.
_NAMES = re.compile(
    "|".join(
        [
            *MODULES,
            *(name.rpartition(".")[2] for name in CALLS),
            *(name for name, _ in KEYWORDS),
            *("yaml", "CERT_NONE"),
        ]
    )
)

_NO_REASON = re.compile(r"# noqa: (?:[A-Z]+\d+, )*S\d+(?:, [A-Z]+\d+)*(?! - \S|[\d,])")


def unsafe(text: str) -> Iterator[str]:
    """Yield what a program should not do."""
    for node in ast.walk(ast.parse(text)) if _NAMES.search(text) else ():
        if isinstance(node, ast.Import):
            yield from (it.name for it in node.names if it.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield f"from {node.module}"
        elif isinstance(node, ast.Call):
            name = _name_of(node.func)
            if name in CALLS or (name.partition(".")[0] == "yaml" and name[5:] in _LOADS):
                yield name
            for given in node.keywords:
                if (
                    isinstance(given.value, ast.Constant)
                    and (given.arg, given.value.value) in KEYWORDS
                ):
                    yield ast.unparse(given)
        elif isinstance(node, ast.Attribute) and node.attr == "CERT_NONE":
            yield node.attr
        elif isinstance(node, ast.Assign) and _is_unchecked(node):
            yield ast.unparse(node)


def _name_of(function: ast.expr) -> str:
    """Return the name of a function, or the names of its module and of itself."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _is_unchecked(node: ast.Assign) -> bool:
    """Return whether the host of a connection is not checked from there on."""
    names = [target.attr for target in node.targets if isinstance(target, ast.Attribute)]
    return "check_hostname" in names and ast.unparse(node.value) == "False"


def test_no_program_of_the_bundle_does_what_is_unsafe() -> None:
    found = [(str(file.relative_to(ROOT)), it) for file in FILES for it in unsafe(file.read_text())]

    assert len(FILES) > 300
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "subprocess.run('x', shell=True)",
        "requests.get(url, verify=False)",
        "yaml.load(text)",
        "yaml.unsafe_load(text)",
        "eval('1')",
        "context.verify_mode = ssl.CERT_NONE",
        "context.check_hostname = False",
        "ssl._create_unverified_context()",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert list(unsafe(line))


def test_safe_lines_are_not() -> None:
    assert list(unsafe("yaml.safe_load(text); run(['x'], shell=False); executor.exec()")) == []


def test_a_reason_stands_behind_its_rules() -> None:
    without = [
        "x # noqa: S608",
        "x  # noqa: BLE001, S310",
        "x # noqa: S608 -",
        "x # noqa: S310, E5",
    ]

    assert all(map(_NO_REASON.search, without))
    assert not _NO_REASON.search("x  # noqa: S608 - a known table")
    assert not _NO_REASON.search("x  # noqa: BLE001, S310 - our own")


def test_every_exception_of_a_security_rule_has_its_reason() -> None:
    lines = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if _NO_REASON.search(line)
    ]

    assert lines == []
