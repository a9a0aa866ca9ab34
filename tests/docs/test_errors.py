"""The code on the page about errors runs unchanged."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.worlds.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs/errors.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_step_of_the_page_fails_as_it_says(tmp_path: Path) -> None:
    code = block("python")
    assert code.count("retry_after=30") == 1
    # Longer than the step has: else it waits for the provider until its deadline, six minutes.
    (tmp_path / "steps.py").write_text(code.replace("retry_after=30", "retry_after=600"))
    setting, *commands = block("sh").splitlines()
    name, _, value = setting.removeprefix("export ").partition("=")
    shell = Shell(tmp_path, {name: value})

    registry, ended = (shell.run(*shlex.split(line)[1:]) for line in commands)
    again = shell.run("start", "summary")

    assert "2 s, x3 up to 600 s, never builtins:KeyError, openai:Auth" in registry.stdout
    assert "RETRIES_EXHAUSTED" in ended.stdout
    assert 'raise AgentClientError("rate limited"' in ended.stderr
    assert again.returncode == 0
