"""An emulator that dies at its start: each process that waits for it says so at once, and why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.worlds import emulators

#: A machine without the memory for it.
JAVA = "#!/bin/sh\necho many lines\necho no memory for $2 >&2\nexit 1\n"


@pytest.fixture(autouse=True)
def _java_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").write_text(JAVA)
    (tmp_path / "java").chmod(0o755)
    jar = tmp_path / emulators._JAR  # noqa: SLF001 - where an installed one has it
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(tmp_path))
    monkeypatch.setattr(emulators, "_START_S", 1e9)


def test_the_process_that_started_it_shows_the_end_of_its_log() -> None:
    with pytest.raises(pytest.fail.Exception, match="many lines\nno memory"):  # noqa: SIM117
        with emulators.own_firestore():
            pass


def test_so_does_each_process_that_is_lent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LENT", "_LENT_PUBSUB"):
        monkeypatch.setattr(emulators, name, "AN_EMULATOR")
    monkeypatch.setenv("AN_EMULATOR", "")  # so it is gone after this test
    monkeypatch.delenv("AN_EMULATOR")
    monkeypatch.setattr(sys, "argv", ["emulators", "true"])

    assert emulators.main() == 0
    with pytest.raises(pytest.fail.Exception, match="many lines\nno memory"):
        emulators.firestore_host.__wrapped__()
