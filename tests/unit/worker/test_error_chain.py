"""What led to an error: an outage, a lack of memory, or a machine that has run short."""

from __future__ import annotations

import errno

import pytest

from leasehold.errors import StoreUnavailableError
from leasehold.worker.failures.error_chain import lacked_memory, outage_in, shortage_in

OUTAGE = StoreUnavailableError(store="firestore", problem="UNAVAILABLE")


def caused_by(cause: BaseException) -> ValueError:
    error = ValueError("what the handler made of it")
    error.__cause__ = cause
    return error


def raised_while_handling(older: BaseException, *, cut_off: bool = False) -> ValueError:
    error = ValueError("another one")
    error.__context__, error.__suppress_context__ = older, cut_off
    return error


@pytest.mark.parametrize(
    "error",
    [
        OUTAGE,
        caused_by(OUTAGE),
        raised_while_handling(OUTAGE),
        ExceptionGroup("some", [ValueError(), OUTAGE]),
        caused_by(ExceptionGroup("some", [ExceptionGroup("more", [caused_by(OUTAGE)])])),
    ],
    ids=["itself", "a cause", "what was handled", "one of a group", "deep within"],
)
def test_an_outage_is_found_in_all_that_led_to_an_error(error: BaseException) -> None:
    """Taken for a failure of the handler, it would use up the attempts of the step."""
    assert outage_in(error) is OUTAGE


def test_an_outage_that_an_error_was_cut_off_from_did_not_lead_to_it() -> None:
    assert outage_in(raised_while_handling(OUTAGE, cut_off=True)) is None


@pytest.mark.parametrize(
    "shortage",
    [
        MemoryError(),
        OSError(errno.EAGAIN, "no process"),
        OSError(errno.EMFILE, "no descriptor"),
        OSError(errno.ENFILE, "no descriptor on the whole machine"),
        OSError(errno.ENOMEM, "no memory"),
        RuntimeError("can't start new thread"),
        RuntimeError("unable to start watchdog thread"),
    ],
    ids=repr,
)
def test_a_machine_that_has_run_short_is_found_in_a_chain(shortage: BaseException) -> None:
    """Another machine, or a later time, has it: the step has not failed."""
    assert shortage_in(caused_by(ExceptionGroup("some", [shortage]))) is shortage


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no file"),
        ConnectionResetError(errno.ECONNRESET, "gone"),
        RuntimeError("can't start"),
        OSError("without a number"),
    ],
    ids=repr,
)
def test_other_errors_of_the_system_are_the_handlers_own(error: BaseException) -> None:
    assert shortage_in(error) is None


def test_a_lack_of_memory_is_found_behind_what_it_became() -> None:
    assert lacked_memory(caused_by(MemoryError()))
    assert lacked_memory(ExceptionGroup("some", [MemoryError()]))
    assert not lacked_memory(ValueError())
    assert not lacked_memory(None)
