"""What the import of a catalog raises is told in one bounded line, without its secrets."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell

WORDS = "connect to postgres://ada:hunter2secret@db with password=hunter2secret "


@pytest.mark.parametrize("words", [["registry"], ["check"], ["registry", "--json"]], ids=str)
def test_what_an_import_raises_is_bounded_and_shows_no_secret(
    shell: Shell, words: list[str]
) -> None:
    source = f"raise ValueError({WORDS!r} + 'x ' * 100_000)\n"
    (shell.folder / f"hostile_{len(words)}_{words[0]}.py").write_text(source)
    shell.settings["LEASEHOLD_CATALOG"] = f"hostile_{len(words)}_{words[0]}"

    done = shell.run(*words)

    shown = done.stdout + done.stderr
    assert "importing it raised ValueError: connect to postgres://" in shown
    assert "hunter2secret" not in shown
    assert len(shown) < 5000
