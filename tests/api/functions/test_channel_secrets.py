"""Secrets of channels stay where they are set: no store, no answer and no log has one."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.errors import ChannelRefusedError, ChannelUnavailableError
from leasehold.in_process import InProcessEngine
from tests.api.functions import announced_steps
from tests.api.functions.announced_steps import CHANNELS, PIPELINES, STEPS
from tests.worlds.deliveries import TIMEOUT_S, delivery
from tests.worlds.functions import Function, one_store

PLANTED = "planted-7f3a"
SECRETS = {
    "TEAM_URL": f"https://127.0.0.1/services/{PLANTED}",
    "HOOK_URL": f"https://127.0.0.1:8443/{PLANTED}",
    "HOOK_SECRET": f"whsec_{PLANTED}",
    "SMTP_SERVER": f"{PLANTED}.invalid:x",
    "SMTP_USER": PLANTED,
    "SMTP_PASSWORD": PLANTED,
}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return one_store(tmp_path, monkeypatch, LEASEHOLD_CATALOG=announced_steps.__name__, **SECRETS)


@pytest.fixture
def engine(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    with InProcessEngine(STEPS, PIPELINES, channels=CHANNELS, environ=environ, workers=0) as engine:
        yield engine


def everything_in(folder: Path) -> bytes:
    """All bytes of the store and of the artifacts, unpacked where they are packed."""
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return b"".join(gzip.decompress(it) if it[:2] == b"\x1f\x8b" else it for it in contents)


def test_nothing_that_is_kept_or_shown_has_a_secret(
    engine: InProcessEngine,
    serve_api: Function,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    run_id = engine.run("letters", {"text": "a"}).run_id
    refusals = []
    for entry in CHANNELS:
        with pytest.raises((ChannelRefusedError, ChannelUnavailableError)) as refused:
            engine.engine.channels.open(entry).send(delivery(), timeout=TIMEOUT_S)
        refusals.append(f"{refused.value!r} {refused.value.details}")

    paths = ("/runs", f"/runs/{run_id}", f"/runs/{run_id}/trace", f"/runs/{run_id}/why")
    answers = [serve_api.client.get(path).get_data(as_text=True) for path in (*paths, "/registry")]
    printed = capsys.readouterr()

    assert "HOOK_SECRET" in answers[-1]
    assert engine.show(run_id).announcement is not None
    assert len(refusals) == len(CHANNELS)
    assert PLANTED not in "".join([*answers, *refusals]) + caplog.text + printed.out + printed.err
    assert PLANTED.encode() not in everything_in(tmp_path)
    assert "HOOK" not in engine.show(run_id).model_dump_json()  # a delivery's last error names it
