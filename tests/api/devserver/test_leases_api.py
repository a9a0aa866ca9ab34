"""The API of leases is served where the catalog has steps for workers elsewhere."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from leasehold.devserver.function_processes import entry_folder
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.errors import SettingError
from tests.worlds.bundles import ROOT, dev_server, settings
from tests.worlds.ports import own_port

REMOTE = {"LEASEHOLD_CATALOG": "tests.worlds.catalogs.bundle_of_remote"}


def test_it_is_served_and_told_where_a_step_is_remote(tmp_path: Path) -> None:
    lines: list[str] = []
    port = own_port()
    with (
        dev_server(tmp_path, REMOTE, say=lines.append, lease_port=port) as server,
        pytest.raises(urllib.error.HTTPError) as caught,
    ):
        urllib.request.urlopen(f"{server.leases_url}/nothing", timeout=10)  # noqa: S310 - our own server

    assert server.leases_url == f"http://127.0.0.1:{port}"
    assert lines[-1] == f"leases http://127.0.0.1:{port}"
    with caught.value as answer:
        assert answer.code == 404
        assert "/leases:claim" in answer.read().decode()


def test_it_is_not_served_where_no_step_is_remote(tmp_path: Path) -> None:
    server = DevServer(DevOptions(port=own_port(), environ=settings(tmp_path)), print)

    assert server.leases_url is None


def test_an_entry_of_the_project_takes_the_place_of_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a bundle; what neither has is refused."""
    own = tmp_path / "functions"
    own.mkdir()
    (own / "serve_api.py").write_text("def serve_api(request): ...\n")
    monkeypatch.chdir(tmp_path)

    assert entry_folder("serve_api") == own
    assert entry_folder("manage_lease") == ROOT / "shared/leasehold/functions"
    with pytest.raises(SettingError, match=r"functions/send_digest\.py"):
        entry_folder("send_digest")


def test_its_port_is_its_own(tmp_path: Path) -> None:
    port = own_port()
    options = DevOptions(port=port, lease_port=port, environ=settings(tmp_path) | REMOTE)

    with pytest.raises(SettingError, match="--lease-port"):
        DevServer(options, print)
