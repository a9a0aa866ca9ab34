"""The requirements of a bundle: exact versions of all that a function needs."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.requirements import closure_of, hashes_of
from tests.worlds.clean_environment import ROOT


def lines(root: Path = ROOT, *extras: str) -> list[str]:
    text = closure_of(root, ["pipelines"], ("review", *extras)).text()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_each_package_is_one_line_with_the_version_of_the_constraints() -> None:
    pinned = {line.lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}

    found = lines()

    assert {line.replace("-", "_") for line in found} <= {it.replace("-", "_") for it in pinned}
    names = [line.partition("==")[0] for line in found]
    assert names == sorted(set(names))


def test_the_build_finds_the_framework_and_its_server_and_not_leasehold_itself() -> None:
    """It looks for the first in this way, and installs other versions of both where it is not."""
    text = "\n".join(lines())

    assert re.search(r"(?m)^functions-framework\b([^-]|$)", text)
    assert re.search(r"(?m)^gunicorn==", text)
    assert "leasehold" not in text


def of_pipelines() -> set[str]:
    """Return what this project's own pipelines need besides."""
    file = ROOT / "pipelines" / "requirements.txt"
    return set(file.read_text().split()) if file.exists() else set()


def test_a_function_gets_what_its_stores_channels_and_pipelines_need() -> None:
    found = {line.partition("==")[0] for line in lines()}

    assert found >= {"google-cloud-firestore", "google-cloud-tasks", "google-cloud-pubsub"}
    assert found >= {"google-cloud-storage", "slack-sdk", "markdown-it-py", "tomli-w", "tenacity"}
    assert not found & ({"openai", "pytest", "waitress", "google-cloud-iam"} - of_pipelines())


def test_what_the_pipelines_need_is_installed_with_the_rest(tmp_path: Path) -> None:
    """A build installs nothing else, and a bundle pins what is installed."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "requirements.txt").write_text("tabulate\n")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)

    for target in (".venv/.dev", ".venv/.runtime"):
        words = ["make", "--dry-run", target]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert " -r shop/requirements.txt" in done.stdout


def test_a_further_extra_brings_all_that_it_needs() -> None:
    further = {line.partition("==")[0] for line in set(lines(ROOT, "llm")) - set(lines())}

    assert {"openai", "jiter"} <= further or "openai" in of_pipelines()


def test_an_extra_may_bring_others_but_never_leasehold() -> None:
    found = {line.partition("==")[0] for line in lines(ROOT, "dev")}

    assert found >= {"openai", "waitress", "pytest"}
    assert "leasehold" not in found


def test_requirements_beside_the_pipelines_are_pinned_with_what_they_need(root: Path) -> None:
    (root / "pipelines" / "requirements.txt").write_text(
        '# for one step\nhypothesis>=6  # and a word\niniconfig; python_version < "3.12"\n'
    )

    further = set(lines(root)) - set(lines())

    assert further == {
        f"hypothesis=={version('hypothesis')}",
        f"sortedcontainers=={version('sortedcontainers')}",
        f"iniconfig=={version('iniconfig')}; python_version == '3.11'",
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("no-such-package", "needs no-such-package, which is not installed; type: pip install"),
        ("pydantic<2", rf"needs pydantic<2, and {version('pydantic')} is installed; type:"),
        ("-r other.txt", ":1: '-r other.txt' cannot be used; allowed: the name of a package"),
        ("./wheels/a.whl", "cannot be used; allowed: the name of a package"),
        ("a @ https://example.com/a.whl", "cannot be used; allowed: the name of a package"),
        ("leasehold>=0.1", ":1: the bundle has leasehold itself; delete the line"),
    ],
)
def test_a_line_that_pins_nothing_is_refused(root: Path, line: str, problem: str) -> None:
    (root / "pipelines" / "requirements.txt").write_text(line)

    with pytest.raises(BundleError) as refused:
        lines(root)

    assert str(refused.value).startswith("pipelines/requirements.txt")
    assert problem in str(refused.value)


def test_another_version_than_was_constrained_is_refused(root: Path) -> None:
    (root / "constraints.txt").write_text("Flask==0.1\n")

    with pytest.raises(BundleError, match=r"flask .* is installed, and constraints.txt has 0.1"):
        lines(root)


def test_an_extra_that_is_not_there_is_refused(root: Path) -> None:
    with pytest.raises(BundleError, match=r"--extra gpu: there is none of that name; there are "):
        lines(root, "gpu")


def test_a_package_that_comes_from_no_index_is_not_pinned(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build would take a stranger's package of that name."""
    metadata = tmp_path / "site" / "own_library-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-library\nVersion: 1.0\n")
    (metadata / "direct_url.json").write_text('{"url": "file:///home/ann/own", "dir_info": {}}')
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (root / "pipelines" / "requirements.txt").write_text("own-library\n")

    with pytest.raises(BundleError, match="own-library, which is installed from a folder"):
        lines(root)


def test_each_package_that_a_function_may_need_has_the_hash_of_its_file() -> None:
    """If one is missing, or left over: leasehold deploy hashes --extra llm --extra otel."""
    hashes = hashes_of(ROOT)
    closure = closure_of(ROOT, ["pipelines"], ["llm", "otel", "review"])

    assert {*hashes} == {closure.pin(name) for name in closure.installed}
    for digests in hashes.values():
        assert digests
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
    lines = closure.text(hashes).splitlines()[1:]
    assert all(" --hash=sha256:" in line for line in lines)


def test_where_a_hash_is_not_known_none_is_asked_for_and_that_is_told(root: Path) -> None:
    """Pip asks for all of them or for none; a build would end at the one that is missing."""
    (root / "pipelines" / "requirements.txt").write_text("hypothesis\n")

    closure = closure_of(root, ["pipelines"])

    assert "--hash=" not in closure.text(hashes_of(root))
    assert any(pin.startswith("hypothesis==") for pin in closure.without(hashes_of(root)))
