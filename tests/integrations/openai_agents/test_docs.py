"""The code on the page about agents runs unchanged."""

from __future__ import annotations

from pathlib import Path

from tests.integrations.pages import output_of_tests, write_files


def test_the_tests_of_the_page_pass_without_a_warning(tmp_path: Path) -> None:
    assert write_files("OpenAI Agents SDK", tmp_path) == ["steps.py", "test_steps.py"]

    assert "1 passed" in output_of_tests(tmp_path)
