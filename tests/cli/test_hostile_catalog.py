"""An error in the import of a catalog is one bounded line, without secrets."""

from __future__ import annotations

import pytest

from tests.worlds.ports import own_port
from tests.worlds.shell import LEASEHOLD, Shell

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


ENDS = {
    "own_base_exception": (
        "class Mine(BaseException): ...\nraise Mine('no key')\n",
        "Mine: no key",
    ),
    "own_exit": ("class Mine(SystemExit): ...\nraise Mine(4)\n", "Mine: 4"),
    "own_interrupt": ("class Mine(KeyboardInterrupt): ...\nraise Mine('no')\n", "Mine: no"),
    "generator_exit": ("raise GeneratorExit('no')\n", "GeneratorExit: no"),
    "leaves": ("import os\nos._exit(0)\n", "SystemExit: os._exit(0)"),
    "silent": (
        "class Mine(BaseException):\n    def __str__(self): raise Mine\nraise Mine('no')\n",
        "Mine: Its words raised Mine",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_catalog_that_ends_its_import_in_any_way_is_told_in_one_line(
    shell: Shell, name: str
) -> None:
    source, words = ENDS[name]
    (shell.folder / f"ends_{name}.py").write_text(source)
    settings = {"LEASEHOLD_CATALOG": f"ends_{name}"}

    done = {
        command: shell.process(*LEASEHOLD, *command.split(), **settings)
        for command in (f"serve --port {own_port()}", "check", "doctor", "start shop --in-process")
    }

    told = f"LEASEHOLD_CATALOG 'ends_{name}' cannot be used: importing it raised {words}"
    lines = {command: one.stdout + one.stderr for command, one in done.items()}
    assert all(lines[command].count(told) == 1 for command in done), lines
    assert not any("Traceback" in shown for shown in lines.values())
    assert [one.returncode for one in done.values()] == [2, 1, 1, 2]


def test_a_handlers_module_that_leaves_ends_no_server_that_looks_at_it(shell: Shell) -> None:
    shop = (shell.folder / "shop.py").read_text()
    changed = shop.replace('handler=f"shop:', 'handler=f"leaving_steps:')
    (shell.folder / "leaving_shop.py").write_text(changed)
    (shell.folder / "leaving_steps.py").write_text("import os\nos._exit(0)\n")

    done = shell.process(
        *LEASEHOLD, "serve", "--port", str(own_port()), LEASEHOLD_CATALOG="leaving_shop"
    )

    assert "importing 'leaving_steps' raised SystemExit: os._exit(0)" in done.stderr
    assert "not started: put that right" in done.stderr
    assert done.returncode == 2
