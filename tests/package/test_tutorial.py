"""docs/tutorial.md: typed from top to bottom, in an empty folder, it prints what it says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.worlds.clean_environment import ROOT, CleanEnvironment
from tests.worlds.forked_commands import SERVED, forked_commands
from tests.worlds.typed_page import Saved, Terminal, Typed, fits, screen_of, steps_of, typed

PAGE = (ROOT / "docs/tutorial.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_tutorial_prints_what_it_says(complete: CleanEnvironment, tmp_path: Path) -> None:
    """Its first block makes an environment such as `complete`."""
    with forked_commands(complete.environ, "pytest", "leasehold.testing", *SERVED) as environ:
        terminal = Terminal(tmp_path, environ)
        try:
            differs = [*typed(PAGE, terminal, tmp_path / "documents")]
        finally:
            terminal.close()

    assert differs == []


def test_the_tutorial_installs_what_it_needs_and_no_name_of_an_index() -> None:
    (install,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert install.splitlines()[-1] == "pip install '../leasehold[serve]' pytest"


def test_what_a_page_leaves_open_may_be_anything_and_nothing_else() -> None:
    shown = ["…", "run r-0123456789abcdef COMPLETED in 15 s", "next: …"]
    screen = ["a", "b", "run r-aaaaaaaaaaaaaaaa COMPLETED in 0.2 s", "next: leasehold show"]

    assert fits(shown, screen)
    assert not fits(shown, [*screen, "error: it is not over"])
    assert not fits(shown, ["a", "run r-aaaaaaaaaaaaaaaa BLOCKED in 0.2 s", "next: x"])


def test_of_a_drawing_the_last_state_is_shown() -> None:
    sent = "\x1b[?25lone\r\n\x1b[34mtwo\x1b[0m\r\x1b[2K\x1b[1A\x1b[2KONE\r\n\x1b[32mTWO\x1b[0m\r\n"

    assert screen_of(sent) == ["ONE", "TWO"]


def test_a_page_is_commands_and_files_in_their_order() -> None:
    page = "```python\n# a.py\nx = 1\n```\ntext\n```console\n$ ls\na.py\n```\n"

    assert [*steps_of(page)] == [Saved("a.py", "# a.py\nx = 1\n"), Typed("ls", ["a.py"])]
