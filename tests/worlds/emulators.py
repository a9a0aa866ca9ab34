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
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

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
#: Their host, process and log, as `Emulator` has them; tests set what clients read.
_LENT: Final = "FIRESTORE_EMULATOR_OF_TESTS"
_LENT_PUBSUB: Final = "PUBSUB_EMULATOR_OF_TESTS"
#: So many characters of its log say why an emulator ended.
_END_OF_LOG: Final = 4000
_PR_SET_PDEATHSIG: Final = 1
_LOGS: Final[list[Any]] = []


class MissingEmulatorError(Exception):
    """A package that an emulator needs is missing."""


class Emulator(NamedTuple):
    """An emulator that was started, perhaps by another process.

    Args:
        host: its host and port.
        pid: its process.
        log: the file that it writes to.
    """

    host: str
    pid: int
    log: str


@functools.cache
def firestore_host() -> str:
    """Return host and port of the Firestore emulator, started when it is first asked for.

    Or of the one that runs for all processes of the command.

    Raises:
        MissingEmulatorError: the jar or Java is not there.
    """
    return _lent(_LENT) or _waited_for(*_start("firestore", _JAR, _MAIN, "start"))


@contextlib.contextmanager
def own_firestore() -> Iterator[tuple[str, int]]:
    """Run a Firestore emulator that no other test uses; lend its host and port, and its process.

    Raises:
        MissingEmulatorError: as `firestore_host`.
    """
    emulator, process = _start("firestore", _JAR, _MAIN, "start")
    try:
        yield _waited_for(emulator, process), emulator.pid
    finally:
        _end(process)


@functools.cache
def pubsub_host() -> str:
    """Return host and port of the Pub/Sub emulator, as `firestore_host` does.

    Raises:
        MissingEmulatorError: the jar or Java is not there.
    """
    return _lent(_LENT_PUBSUB) or _waited_for(*_start("pubsub", _PUBSUB_JARS, _PUBSUB_MAIN))


def _start(name: str, jar: str, main: str, *words: str) -> tuple[Emulator, subprocess.Popen[bytes]]:
    """Start an emulator; return it, and its process."""
    how = _HOW.format(name=name)
    java = shutil.which("java")
    if java is None:
        raise MissingEmulatorError(f"java is not on PATH; get it: {how}")
    host = f"127.0.0.1:{own_port()}"
    log = tempfile.NamedTemporaryFile(  # noqa: SIM115 - the emulator writes to it
        prefix=f"{name}-emulator-", suffix=".log"
    )
    address = [f"--host={_LOOPBACK}", f"--port={host.rpartition(':')[2]}"]
    process = subprocess.Popen(
        [java, *_JAVA, "-cp", str(_jar(jar, how)), main, *words, *address],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for pytest; it ends the emulator when it is done
        preexec_fn=_end_with_the_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - before any thread
    )
    atexit.register(_end, process)
    _LOGS.append(log)  # it is deleted when it is closed
    return Emulator(host, process.pid, log.name), process


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


def _lent(name: str) -> str | None:
    """Return the host of the emulator that runs for all processes, if it does, once it listens."""
    if (words := os.environ.get(name)) is None:
        return None
    host, pid, log = words.split(maxsplit=2)
    emulator = Emulator(host, int(pid), log)
    return _host_of(emulator, lambda: not _exists(emulator.pid))


def _waited_for(emulator: Emulator, process: subprocess.Popen[bytes]) -> str:
    """Return the host of an emulator of this process, once it listens."""
    return _host_of(emulator, lambda: process.poll() is not None)


def _host_of(emulator: Emulator, has_ended: Callable[[], bool]) -> str:
    """Return its host once it listens; if it does not, fail the test with the end of its log."""
    with contextlib.suppress(AssertionError):
        until(lambda: _listens(emulator.host) or has_ended(), _START_S)
    if _listens(emulator.host):
        return emulator.host
    end = Path(emulator.log).read_text(errors="replace")[-_END_OF_LOG:]
    pytest.fail(f"the emulator did not start; its log ends:\n{end}", pytrace=False)


def _exists(pid: int) -> bool:
    """Return whether a process is there: one that has ended is reaped by the one that lends it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


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


def _lend(name: str, emulator: Emulator, process: subprocess.Popen[bytes]) -> None:
    """Name an emulator to all processes that this one starts; they see at once when it ends."""
    os.environ[name] = f"{emulator.host} {emulator.pid} {emulator.log}"
    threading.Thread(target=process.wait, daemon=True).start()


def main() -> int:
    """Run a command whose processes share the emulators; return its exit code."""
    with contextlib.suppress(MissingEmulatorError):  # its tests say so
        if _LENT_PUBSUB not in os.environ:
            _lend(_LENT_PUBSUB, *_start("pubsub", _PUBSUB_JARS, _PUBSUB_MAIN))
    with contextlib.suppress(MissingEmulatorError):
        if _LENT not in os.environ:
            _lend(_LENT, *_start("firestore", _JAR, _MAIN, "start"))
    command = subprocess.Popen(sys.argv[1:])
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the command as well
            return command.wait()


if __name__ == "__main__":
    sys.exit(main())
