"""`make audit`, against a server that answers as OSV does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from leasehold.devserver.loopback_server import LoopbackServer
from tools.audit import CONSTRAINTS, RUNTIME, main, pins


class Osv:
    """Knows of one vulnerability, in `old` 1.0."""

    def __init__(self) -> None:
        self.questions: list[Any] = []
        self.body: bytes | None = None

    def __call__(self, environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        size = int(environ["CONTENT_LENGTH"])
        question = json.loads(environ["wsgi.input"].read(size))
        self.questions.append(question)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [
            self.body or json.dumps({"results": list(map(_known, question["queries"]))}).encode()
        ]


def _known(query: Any) -> Any:
    is_old = (query["package"]["name"], query["version"]) == ("old", "1.0")
    return {"vulns": [{"id": "GHSA-1"}, {"id": "PYSEC-2"}]} if is_old else {}


@pytest.fixture
def osv() -> Iterator[tuple[Osv, str]]:
    answers = Osv()
    server = LoopbackServer(answers, "osv")
    url = server.start()
    yield answers, url
    server.stop()


def audit(folder: Path, text: str, url: str, **environ: str) -> int:
    constraints = folder / "constraints.txt"
    constraints.write_text(text)
    return main(["--constraints", str(constraints), "--url", url], environ)


def test_all_packages_are_asked_for_at_once(osv: tuple[Osv, str], tmp_path: Path) -> None:
    assert audit(tmp_path, "new==2.0\n# a comment\n\nother.one==3\n", osv[1]) == 0

    assert osv[0].questions == [
        {
            "queries": [
                {"package": {"name": "new", "ecosystem": "PyPI"}, "version": "2.0"},
                {"package": {"name": "other.one", "ecosystem": "PyPI"}, "version": "3"},
            ]
        }
    ]


def test_a_known_vulnerability_fails(
    osv: tuple[Osv, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(tmp_path, "new==2.0\nold==1.0\n", osv[1]) == 1

    assert capsys.readouterr().out.splitlines() == [
        "audit: old 1.0 has https://osv.dev/vulnerability/GHSA-1",
        "audit: old 1.0 has https://osv.dev/vulnerability/PYSEC-2",
        "audit: 2 packages, 2 known vulnerabilities.",
    ]


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"results": [{}, {}]}', b'{"results": {}}', b"{}"]
)
def test_an_answer_for_something_else_is_none(
    osv: tuple[Osv, str], tmp_path: Path, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    osv[0].body = body

    assert audit(tmp_path, "new==2.0\n", osv[1]) == 0
    assert audit(tmp_path, "new==2.0\n", osv[1], LEASEHOLD_REQUIRE_AUDIT="1") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("audit: not done, ") for line in lines] == [True, True]


@pytest.mark.parametrize(
    "result", [{"vulns": [{}]}, {"vulns": [None]}, {"vulns": "GHSA-1"}, {"vulns": {"id": "x"}}]
)
def test_what_is_known_fails_however_it_is_said(
    osv: tuple[Osv, str], tmp_path: Path, result: Any
) -> None:
    osv[0].body = json.dumps({"results": [None, result]}).encode()

    assert audit(tmp_path, "new==2.0\nold==1.0\n", osv[1]) == 1


@pytest.mark.parametrize("result", [None, "x", {"next_page_token": "x"}])
def test_an_answer_that_does_not_say_all_of_it_is_none(
    osv: tuple[Osv, str], tmp_path: Path, result: Any
) -> None:
    osv[0].body = json.dumps({"results": [result]}).encode()

    assert audit(tmp_path, "new==2.0\n", osv[1]) == 0
    assert audit(tmp_path, "new==2.0\n", osv[1], LEASEHOLD_REQUIRE_AUDIT="1") == 1


def test_an_id_that_moves_the_screen_is_spelled_out(
    osv: tuple[Osv, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    osv[0].body = json.dumps({"results": [{"vulns": [{"id": "\x1b[2J\n"}]}]}).encode()

    assert audit(tmp_path, "new==2.0\n", osv[1]) == 1
    assert "/\\x1b[2J\n" in capsys.readouterr().out


def test_without_a_network_it_says_so_and_passes_unless_it_must_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()

    assert audit(tmp_path, "new==2.0\n", "http://127.0.0.1:9/") == 0
    assert audit(tmp_path, "new==2.0\n", "http://127.0.0.1:9/", LEASEHOLD_REQUIRE_AUDIT="1") == 1

    assert time.monotonic() - began < 10
    assert capsys.readouterr().err.count("\n") == 2


def test_a_line_that_would_not_be_audited_is_an_error(tmp_path: Path) -> None:
    assert audit(tmp_path, "new>=2.0\n", "http://127.0.0.1:9/") == 2


def test_every_package_of_this_repository_is_pinned() -> None:
    assert len(list(pins(CONSTRAINTS.read_text()))) > 50


def test_a_deploy_audits_what_it_deploys_and_not_the_tools_of_the_tests() -> None:
    """One of these with an advisory would keep a repair from being deployed."""
    audited = {name for name, _ in pins(RUNTIME.read_text())}
    gate = yaml.safe_load(CONSTRAINTS.with_name("cloudbuild.gate.yaml").read_text())
    check = next(step for step in gate["steps"] if step["id"] == "check")

    assert "LEASEHOLD_AUDIT=runtime" in check["env"]
    assert {"flask", "google-cloud-firestore", "functions-framework"} <= audited
    assert not {"pytest", "hypothesis", "ruff", "mypy"} & audited


@pytest.mark.parametrize(("scope", "file"), [("runtime", "hashes.txt"), ("", "constraints.txt")])
def test_what_is_audited_is_said_by_a_variable(
    scope: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--url", "http://127.0.0.1:9/"], {"LEASEHOLD_AUDIT": scope})

    assert code == 0
    assert "audit: not done" in capsys.readouterr().err
    assert len([*pins((CONSTRAINTS.parent / file).read_text())]) > 50
