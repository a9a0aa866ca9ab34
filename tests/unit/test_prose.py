"""Each rule of the prose check finds what it is for, and leaves good prose alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import prose
from tools.prose import main, of_commits, of_markdown, of_python, of_tests, problems, texts

BAD = {
    "the run is given up whose value is lost": "a relative clause follows its noun",
    "a file is deleted that was refused": "a relative clause follows its noun",
    "published again by whoever comes by": "name the role",
    "Nobody knows whether it was sent.": "name the role",
    "It is deleted unless someone has changed it.": "name the process or the person",
    "so that no one waits for it": "name the process or the person",
    "lost, look after look": "again and again",
    "raised for want of time": "because there is no",
    "a call that is waited for only so long": "for this time",
    "at most so many at once": "name the limit",
    "It lets go of the lock.": "release",
    "logged, and no more than is bearable": "name the limit",
    "an address that is none": "that is not a",
    "a body that is no JSON": "that is not a",
    "It is none of their meaning.": "is not part of",
    "each has a thread of its own": "its own",
    "made by a thread of its own few": "its own",
    "Each channel is told of it.": "gets",
    "what people are still to be told of a run": "receives",
    "A sweep that never ran is told by the alert.": "is reported",
    "what is none of the port's errors": "write a noun",
    "the sources of what is to run": "write a noun",
    "The sweep mends it.": "the term is repair",
    "the result of a call made once": "the term is recorded result",
    "What an attempt counts as is written down.": "begin with the subject",
    "Whoever reads it sees no difference.": "begin with the subject",
    " ".join(["word"] * 36) + ".": "36 words in one sentence",
}

GOOD = (
    "It is known who began the run, and it is asked which store is open.",
    "A run that is no longer live is not listed.",
    "Without it there is no port of its own.",
    "A channel that is none of these is a function.",
    "It waits for so long as the lease runs.",
    "The file says what is wrong with what the user wrote.",
    "What it costs.",
    "Fields that are None are not stored.",
    "Write 'no one' for 'nobody'.",
    "What does a kill repeat?",
    "She told the run to stop.",
    "Recommended: amend the commit.",
    f"Ten words ({' '.join(['word'] * 40)}) and no more.",
    f"{' '.join(['word'] * 30)}; {' '.join(['word'] * 30)}.",
)


@pytest.mark.parametrize("text", BAD)
def test_a_rule_finds_the_prose_that_it_is_for(text: str) -> None:
    assert any(BAD[text] in problem for problem in problems(text))


@pytest.mark.parametrize("text", GOOD)
def test_good_prose_is_left_alone(text: str) -> None:
    assert list(problems(text)) == []


def test_code_links_and_generated_parts_of_a_page_are_left_out() -> None:
    page = """# Nobody reads this

See `nobody` and [the page](nobody.md).

```sh
echo nobody
```

<!-- generated: codes -->
nobody is here
<!-- end -->
- somebody else | in a list
"""

    found = [(one.where, one.text) for one in of_markdown("page.md", page)]

    assert found == [
        ("page.md:1", "Nobody reads this"),
        ("page.md:3", "See CODE and the page."),
        ("page.md:12", "somebody else | in a list"),
    ]


def test_docstrings_comments_and_messages_of_a_module_are_prose() -> None:
    module = '''"""The first line.

A paragraph that is
wrapped.
"""

#: A comment that
#: is wrapped.
LIMIT = 1  # and another


def called(name):
    """Args:
        name: of the thing.
    """
    raise ValueError(f"{name} is not a name")
'''

    found = {(one.where, one.text) for one in of_python("module.py", module)}

    assert found == {
        ("module.py:1", "The first line."),
        ("module.py:3", "A paragraph that is wrapped."),
        ("module.py:8", "A comment that is wrapped."),
        ("module.py:9", "and another"),
        ("module.py:13", "Args:"),
        ("module.py:14", "of the thing."),
        ("module.py:16", "X is not a name"),
    }


def test_a_docstring_begins_with_its_subject_as_a_page_does() -> None:
    module = 'def called():\n    """Return it.\n\n    What it raises is passed on.\n    """\n'

    found = [
        problem
        for one in of_python("module.py", module)
        for problem in problems(one.text, has_sentences=one.has_sentences)
    ]

    assert found == ["'What it raises is passed on....': begin with the subject, a noun"]


def test_the_name_of_a_test_is_a_sentence_and_its_docstring_is_prose() -> None:
    module = 'def test_nobody_waits() -> None:\n    """Whoever waits."""\n'

    docstring, name = of_tests("test_x.py", module)

    assert (docstring.text, docstring.has_sentences) == ("Whoever waits.", True)
    assert (name.text, name.has_sentences) == ("nobody waits", False)


def test_the_check_reads_pages_the_package_and_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each folder some files are enough: `make check` reads all of them once more."""
    files = prose._files  # noqa: SLF001 - the others are seen
    monkeypatch.setattr(prose, "_files", lambda folder: files(folder)[:20])

    places = {one.where.partition("/")[0].partition(":")[0] for one in texts()}

    assert {"README.md", "docs", "shared", "tests", "pipelines"} <= places


def git(folder: Path, *words: str) -> str:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.com", *words],  # noqa: S607
        cwd=folder,
        env=outside,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", subject)


def test_subjects_are_checked_from_the_commit_after_the_first_check(tmp_path: Path) -> None:
    """What is older cannot be changed any more."""
    (tmp_path / "tools").mkdir()
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "Tell nobody")
    (tmp_path / "tools/prose.py").write_text("def of_commits() -> None: ...\n")
    commit(tmp_path, "Check whoever commits")
    commit(tmp_path, "Say it to somebody")
    (tmp_path / "tools/prose.py").write_text("def of_commits() -> None: ...  # changed\n")
    commit(tmp_path, "Change the check")
    git(tmp_path, "clone", "--quiet", "--depth=2", tmp_path.as_uri(), "shallow")

    assert [one.text for one in of_commits(tmp_path)] == ["Change the check", "Say it to somebody"]
    assert [one.text for one in of_commits(tmp_path / "shallow")] == ["Change the check"]


def test_without_a_history_no_subject_is_checked(tmp_path: Path) -> None:
    assert list(of_commits(tmp_path)) == []


@pytest.mark.parametrize(
    ("subject", "code"), [("Tell nobody of it", 1), ("Announce nothing twice", 0)]
)
def test_a_hook_checks_the_subject_of_a_message(tmp_path: Path, subject: str, code: int) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(f"{subject}\n\nWhoever reads on finds the reason.\n")

    assert main([str(message)]) == code
