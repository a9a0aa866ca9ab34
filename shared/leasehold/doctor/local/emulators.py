"""Variables that put a local server in place of one of Google's: left over, or not answering."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

from leasehold.doctor.finding import Finding
from leasehold.doctor.setup import Setup
from leasehold.errors import without_user

_WITHIN_S: Final = 2.0
_HOST_AND_PORT: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+):(?P<port>\d{1,5})/?")
_LAST_PORT: Final = 65_535


class _Emulator(NamedTuple):
    """A variable, the setting whose service it stands for, and how its value begins."""

    variable: str
    setting: str
    scheme: str  # of the setting's value, where the service is used
    begins: str  # of the variable's value; empty: HOST:PORT alone


_EMULATORS: Final = (
    _Emulator("FIRESTORE_EMULATOR_HOST", "LEASEHOLD_STORE", "firestore:", ""),
    _Emulator("CLOUD_TASKS_EMULATOR_URL", "LEASEHOLD_TASKS", "cloud-tasks:", "http://"),
    _Emulator("PUBSUB_EMULATOR_HOST", "LEASEHOLD_EVENTS", "pubsub:", ""),
    _Emulator("STORAGE_EMULATOR_HOST", "LEASEHOLD_ARTIFACTS", "gs:", "http://"),
)
#: Where one of these is emulated and the other is not, runs and tasks do not find each other.
_BELONG_TOGETHER: Final = ("LEASEHOLD_STORE", "LEASEHOLD_TASKS")


def emulators(setup: Setup) -> Iterator[Finding]:
    """Yield what is wrong with the emulators that the settings' services are replaced by."""
    used = [one for one in _EMULATORS if _is_used(setup, one)]
    replaced = [one for one in used if setup.environ.get(one.variable)]
    yield from _left_over(setup, used, replaced)
    for one in replaced:
        yield from _silent(one, setup.environ[one.variable])


def _is_used(setup: Setup, one: _Emulator) -> bool:
    return str(setup.settings[one.setting]).startswith(one.scheme)


def _left_over(setup: Setup, used: list[_Emulator], replaced: list[_Emulator]) -> Iterator[Finding]:
    """Yield a finding where one service is a local server, and one that belongs to it is not."""
    real = [one for one in used if one not in replaced and one.setting in _BELONG_TOGETHER]
    for one in replaced:
        if one.setting in _BELONG_TOGETHER and real:
            message = (
                f"{one.variable} is set, and {real[0].setting} is Google's: runs and their tasks "
                "are in different worlds, and nothing says so."
            )
            yield Finding("half_emulated", message, f"unset {one.variable}")
        elif _is_production(setup):
            message = (
                f"{one.variable} is set beside settings of a deployed installation "
                f"(LEASEHOLD_TASK_ACCOUNT): what is in {one.setting} there is not what is seen "
                "here."
            )
            yield Finding("emulator_left_over", message, f"unset {one.variable}")


def _is_production(setup: Setup) -> bool:
    account = str(setup.settings["LEASEHOLD_TASK_ACCOUNT"])
    url = str(setup.settings["LEASEHOLD_FUNCTION_URL"] or "")
    return account.endswith(".gserviceaccount.com") and url.startswith("https://")


def _silent(one: _Emulator, value: str) -> Iterator[Finding]:
    """Yield a finding where nothing answers, or the address is none."""
    found = _HOST_AND_PORT.fullmatch(value.removeprefix(one.begins))
    if not value.startswith(one.begins) or not found or int(found["port"]) > _LAST_PORT:
        message = f"{one.variable} is {without_user(value)[:80]!r}; allowed: {one.begins}HOST:PORT."
        yield Finding("emulator_address", message, f"unset {one.variable}")
        return
    try:
        address = (found["host"].strip("[]"), int(found["port"]))
        socket.create_connection(address, timeout=_WITHIN_S).close()
    except OSError as error:
        problem = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        message = (
            f"{one.variable} names {value[:80]}, where no emulator answers ({problem}): each call "
            f"of what {one.setting} names waits in vain."
        )
        yield Finding("emulator_silent", message, f"unset {one.variable}")
