"""The emulators of Firestore, Pub/Sub and Cloud Storage: real servers on free loopback ports.

The first test that needs one starts it; all tests of a process share it, each with its own
project. It ends with the process that started it, however that ends.

`python -m tests.worlds.emulators COMMAND...` starts those of Firestore and Pub/Sub once for all
processes of a command: each one for itself would spend more on warming up than on its tests. Within
such a command, another one uses the same emulators.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from tests.worlds.ports import own_port
from tests.worlds.waiting import until

_JAR: Final = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
_MAIN: Final = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
_PUBSUB_JARS: Final = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
_PUBSUB_MAIN: Final = "com.google.cloud.pubsub.testing.v1.Main"
_HOW: Final = "apt install google-cloud-cli-{name}-emulator default-jre-headless"
#: A machine that starts sooner and needs less: what it serves is never worth more compilation.
#: The classes of its jar and its buffers are trusted, and a large nursery is seldom collected.
_JAVA: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xmn300m",
    "-Dio.netty.leakDetection.level=disabled",
    "-Dio.netty.buffer.checkAccessible=false",
    "-Dio.netty.buffer.checkBounds=false",
)
_LOOPBACK: Final = "127.0.0.1"
_START_S: Final = 60.0
_LENT: Final = "FIRESTORE_EMULATOR_OF_TESTS"  # its host and port; tests set what clients read
_LENT_PUBSUB: Final = "PUBSUB_EMULATOR_OF_TESTS"
_PR_SET_PDEATHSIG: Final = 1
_LOGS: Final[list[Any]] = []


class MissingEmulatorError(Exception):
    """A package that an emulator needs is missing."""


@functools.cache
def firestore_host() -> str:
    """Return host and port of the Firestore emulator, started when it is first asked for.

    Or of the one that runs for all processes of the command.

    Raises:
        MissingEmulatorError: the jar or Java is not there.
    """
    if lent := os.environ.get(_LENT):
        until(lambda: _listens(lent), _START_S)  # nobody has waited for it yet
        return lent
    host, emulator, log = _start("firestore", _JAR, _MAIN, "start")
    _wait_for(host, emulator, log)
    return host


@contextlib.contextmanager
def own_firestore() -> Iterator[tuple[str, int]]:
    """Run a Firestore emulator that no other test uses; lend its host and port, and its process.

    Raises:
        MissingEmulatorError: as `firestore_host`.
    """
    host, emulator, log = _start("firestore", _JAR, _MAIN, "start")
    try:
        _wait_for(host, emulator, log)
        yield host, emulator.pid
    finally:
        _end(emulator)


@functools.cache
def pubsub_host() -> str:
    """Return host and port of the Pub/Sub emulator, as `firestore_host` does.

    Raises:
        MissingEmulatorError: the jar or Java is not there.
    """
    if lent := os.environ.get(_LENT_PUBSUB):
        until(lambda: _listens(lent), _START_S)  # as above
        return lent
    host, emulator, log = _start("pubsub", _PUBSUB_JARS, _PUBSUB_MAIN)
    _wait_for(host, emulator, log)
    return host


def _start(
    name: str, jar: str, main: str, *words: str
) -> tuple[str, subprocess.Popen[bytes], Path]:
    """Start an emulator; return its host and port, its process, and what it writes to."""
    how = _HOW.format(name=name)
    java = shutil.which("java")
    if java is None:
        raise MissingEmulatorError(f"java is not on PATH; get it: {how}")
    host = f"127.0.0.1:{own_port()}"
    log = tempfile.NamedTemporaryFile(  # noqa: SIM115 - the emulator writes to it
        prefix=f"{name}-emulator-", suffix=".log"
    )
    address = [f"--host={_LOOPBACK}", f"--port={host.rpartition(':')[2]}"]
    emulator = subprocess.Popen(
        [java, *_JAVA, "-cp", str(_jar(jar, how)), main, *words, *address],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for pytest; it ends the emulator when it is done
        preexec_fn=_end_with_the_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - before any thread
    )
    atexit.register(_end, emulator)
    _LOGS.append(log)  # it is deleted when it is closed
    return host, emulator, Path(log.name)


def need_firestore() -> None:
    """Skip the test where there is no Firestore emulator, or fail it where one is required."""
    try:
        firestore_host()
    except MissingEmulatorError as missing:
        _refuse(f"NO FIRESTORE EMULATOR, so this half of the suite does not run: {missing}")


def need_pubsub() -> None:
    """Skip the test where there is no Pub/Sub emulator, or fail it where one is required."""
    try:
        pubsub_host()
    except MissingEmulatorError as missing:
        _refuse(f"NO PUB/SUB EMULATOR, so nothing is announced by it here: {missing}")


@functools.cache
def _say_at_the_end(text: str) -> None:
    """Print the line once, when pytest no longer captures what is printed."""
    atexit.register(print, text, file=sys.__stderr__, flush=True)


def _refuse(text: str) -> NoReturn:
    if os.environ.get("LEASEHOLD_REQUIRE_EMULATORS") == "1":
        pytest.fail(text, pytrace=False)
    _say_at_the_end(text)
    pytest.skip(text)


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for as long as a client is made."""
    before: Mapping[str, str | None] = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _jar(pattern: str, how: str) -> Path:
    """Return the emulator's jar: beside the gcloud on PATH, or where the SDK usually lies."""
    gcloud = shutil.which("gcloud")
    roots = [Path(gcloud).resolve().parent.parent] if gcloud else []
    if named := os.environ.get("CLOUDSDK_ROOT_DIR"):
        roots.insert(0, Path(named))
    usual = ("/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk")
    roots += [Path(root) for root in usual]
    roots.append(Path.home() / "google-cloud-sdk")
    for root in roots:
        if found := sorted(root.glob(pattern)):
            return found[-1]
    raise MissingEmulatorError(f"{pattern} is in no Google Cloud SDK; get it: {how}")


def _end_with_the_parent() -> None:
    """Ask Linux to end the emulator when pytest is gone, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for(host: str, emulator: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the emulator listens."""
    end = time.monotonic() + _START_S
    while emulator.poll() is None and time.monotonic() < end:
        if _listens(host):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            emulator.wait(0.05)
    _end(emulator)
    pytest.fail(f"the emulator did not start:\n{log.read_text()}", pytrace=False)


def _listens(host: str) -> bool:
    name, _, port = host.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((name, int(port)), timeout=1):
        return True
    return False


def _end(emulator: subprocess.Popen[bytes]) -> None:
    emulator.terminate()
    try:
        emulator.wait(5)
    except subprocess.TimeoutExpired:
        emulator.kill()
        emulator.wait()


@contextlib.contextmanager
def storage_bucket(port: int | None = None) -> Iterator[tuple[str, str]]:
    """Run a Cloud Storage emulator in this process; lend its address and a bucket in it."""
    from gcp_storage_emulator.server import create_server  # noqa: PLC0415 - with its tests alone

    _keep_preconditions_of_deletions()
    port = port or own_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="artifacts")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", "artifacts"
    finally:
        server.stop()


def _keep_preconditions_of_deletions() -> None:
    """Have the emulator delete an object only in the generation that is named, as the real one."""
    from gcp_storage_emulator import exceptions, server  # noqa: PLC0415 - as above
    from gcp_storage_emulator.handlers import objects  # noqa: PLC0415 - as above

    delete = objects.delete

    def delete_if_unchanged(request: Any, response: Any, storage: Any, *rest: Any) -> None:
        wanted = request.query.get("ifGenerationMatch")
        bucket, name = request.params["bucket_name"], request.params["object_id"]
        with contextlib.suppress(exceptions.NotFound):
            if wanted and wanted != [storage.get_file_obj(bucket, name)["generation"]]:
                response.status = HTTPStatus.PRECONDITION_FAILED
                return
        delete(request, response, storage, *rest)

    for _, methods in server.HANDLERS:
        if methods.get(server.DELETE) is delete:
            methods[server.DELETE] = delete_if_unchanged


def main() -> int:
    """Run a command whose processes share the emulators; return its exit code."""
    with contextlib.suppress(MissingEmulatorError):  # its tests say so
        if _LENT_PUBSUB not in os.environ:
            os.environ[_LENT_PUBSUB] = _start("pubsub", _PUBSUB_JARS, _PUBSUB_MAIN)[0]
    with contextlib.suppress(MissingEmulatorError):
        if _LENT not in os.environ:
            os.environ[_LENT] = _start("firestore", _JAR, _MAIN, "start")[0]
    command = subprocess.Popen(sys.argv[1:])
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the command as well
            return command.wait()


if __name__ == "__main__":
    sys.exit(main())
