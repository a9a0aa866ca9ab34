"""How a command ends: its exit code, and one line that says why."""

from __future__ import annotations

import pytest

from leasehold.cli.exit_codes import UNEXPECTED, exit_code_of


def test_a_mistake_of_the_program_is_one_line_and_no_success(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that goes by the code takes 0 for done, and 2 for its own words."""
    monkeypatch.delenv("LEASEHOLD_DEBUG", raising=False)

    def command() -> int:
        raise ZeroDivisionError("odd")

    assert exit_code_of(command) == UNEXPECTED == 70
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "error: unexpected ZeroDivisionError: odd (LEASEHOLD_DEBUG=1 shows the traceback)"
    ]
    assert printed.out == ""
