"""Images of builds are pinned by digest, which a registry is asked for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from leasehold.cli.deploy import cloudbuild
from tests.worlds.serving import while_serving
from tools import images

ROOT = Path(__file__).parents[2]
MANIFEST = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


class Registry(BaseHTTPRequestHandler):
    """Has one image, which it shows to callers with a token, as public registries do."""

    def do_GET(self) -> None:
        host = f"http://{self.headers['Host']}"
        if self.path == "/token?service=registry&scope=repository%3Atools%2Fsdk%3Apull":
            self._answer(200, b'{"token": "t-1"}')
        elif self.path != "/v2/tools/sdk/manifests/slim":
            self._answer(404, b"{}")
        elif self.headers["Authorization"] != "Bearer t-1":
            scope = 'service="registry",scope="repository:tools/sdk:pull"'
            self._answer(401, b"{}", f'Bearer realm="{host}/token",{scope}')
        else:
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self._answer(200, MANIFEST)

    def _answer(self, status: int, body: bytes, challenge: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    with while_serving(server):
        yield f"127.0.0.1:{server.server_port}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(images, "FILE", tmp_path / "images.txt")
    monkeypatch.setattr(cloudbuild, "IMAGES", tmp_path / "images.txt")
    return tmp_path / "images.txt"


def test_no_step_of_a_build_runs_in_an_image_that_can_be_replaced() -> None:
    for name in (cloudbuild.FILE, cloudbuild.GATE_FILE):
        for step in yaml.safe_load((ROOT / name).read_text())["steps"]:
            assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", step["name"]), step["id"]
            assert step["name"] in cloudbuild.IMAGES.read_text().splitlines()


def test_a_tag_is_looked_up_and_written_with_the_digest_of_what_it_names(
    registry: str, file: Path
) -> None:
    image = f"{registry}/tools/sdk:slim"

    assert images.main([image], scheme="http") == 0

    assert file.read_text().splitlines()[1:] == [f"{image}@{DIGEST}"]
    assert cloudbuild.pinned(image) == f"{image}@{DIGEST}"


def test_what_cannot_be_looked_up_leaves_the_file_as_it_is(
    registry: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("python:3.11@sha256:1\n")

    assert images.main([f"{registry}/tools/sdk:other"], scheme="http") == 1

    assert file.read_text() == "python:3.11@sha256:1\n"
    assert "cannot be looked up: HTTPError: HTTP Error 404" in capsys.readouterr().err
