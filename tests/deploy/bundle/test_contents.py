"""The content of a bundle, and what never goes into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.assemble import missing_imports
from leasehold.deploy.bundle.contents import sources
from leasehold.deploy.bundle.modules import Modules

KEY = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQIBADANBgkqhkiG9w0BAQEFAASC' * 3}\n"


def names(root: Path, catalog: str = "pipelines.catalog") -> set[str]:
    return set(sources(root, ["greet"], catalog, root / "shared/leasehold"))


def test_it_holds_each_source_once_as_a_file(root: Path) -> None:
    contents = sources(root, ["greet"], "pipelines.catalog", root / "shared/leasehold")

    assert list(contents) == [
        ".gcloudignore",
        "functions/greet.py",
        "leasehold/__init__.py",
        "leasehold/registry/function_table.py",
        "main.py",
        "pipelines/__init__.py",
        "pipelines/catalog.py",
        "pipelines/steps.py",
        "pipelines/words.json",
    ]
    assert contents["leasehold/registry/function_table.py"] == (root / "deployment.py").read_bytes()


def test_what_is_hidden_or_made_by_tools_stays_out(root: Path) -> None:
    before = names(root)
    for name in (".env", ".leasehold/leasehold.db", "__pycache__/a.pyc", "a.pyc", "x.egg-info/a"):
        path = root / "pipelines" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (root / "functions" / "further.py").write_text("")
    (root / "pipelines" / "requirements.txt").write_text("")

    assert names(root) == before


def test_a_catalog_elsewhere_brings_the_folder_or_the_file_it_is_in(root: Path) -> None:
    (root / "mine").mkdir()
    (root / "mine" / "__init__.py").write_text("")
    (root / "alone.py").write_text("")

    assert names(root, "mine") - names(root) == {"mine/__init__.py"}
    assert names(root, "alone") - names(root) == {"alone.py"}
    (root / "pipelines").rename(root / "elsewhere")
    assert "elsewhere/steps.py" in names(root, "elsewhere.catalog")


@pytest.mark.parametrize(
    ("catalog", "problem"),
    [
        ("nowhere.catalog", "there is no catalog nowhere.catalog: nowhere/catalog.py is missing"),
        ("pipelines.other", "there is no catalog pipelines.other: pipelines/other.py is missing"),
        ("functions.greet", "the catalog functions.greet is in functions, a name that is taken"),
        ("", "the catalog is ''; allowed: a module, as in pipelines.catalog"),
        ("../etc", "the catalog is '../etc'; allowed: a module, as in pipelines.catalog"),
        ("json.catalog", "the catalog json.catalog is in json, a name that is taken"),
    ],
)
def test_a_catalog_that_no_function_would_find_is_refused(
    root: Path, catalog: str, problem: str
) -> None:
    with pytest.raises(BundleError) as refused:
        names(root, catalog)

    assert str(refused.value).startswith(problem)


def test_a_row_without_its_entry_is_refused(root: Path) -> None:
    with pytest.raises(BundleError, match=r"has a row for functions/wave.py, which is missing"):
        sources(root, ["greet", "wave"], "pipelines.catalog", root / "shared/leasehold")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(513 * 2**20)  # of which nothing is on the disk


#: What somebody puts into pipelines/, as a file of that name, and what is said of it.
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a.py": (lambda it: it.write_text("def a(:\n"), "pipelines/a.py:1: invalid syntax"),
    "b.py": (lambda it: it.write_bytes(b"\0"), "pipelines/b.py"),
    "c.py": (lambda it: it.write_bytes(b"\xff = 1"), "pipelines/c.py"),
    "d.py": (lambda it: it.write_text("(" * 500), "pipelines/d.py:1: too many nested"),
    "signing.pem": (lambda it: it.write_text("x"), "is by its name a file of secrets"),
    "OLD.PEM": (lambda it: it.write_text("x"), "is by its name a file of secrets"),
    "id_rsa": (lambda it: it.write_text("x"), "is by its name a file of secrets"),
    "service-account-7.json": (lambda it: it.write_text("x"), "is by its name a file of secrets"),
    "prod.env": (lambda it: it.write_text("x"), "is by its name a file of secrets"),
    "account.json": (lambda it: it.write_text(KEY), "pipelines/account.json holds a private key"),
    "line\nbreak": (lambda it: it.write_text("x"), "a name that not every archive can hold"),
    "out": (lambda it: it.symlink_to("/etc/hostname"), "a link out of the repository, to /etc/"),
    "gone": (lambda it: it.symlink_to("nothing"), "pipelines/gone: a link to nothing"),
    "ring": (lambda it: it.symlink_to("ring"), "pipelines/ring: a link to nothing"),
    "loop": (lambda it: it.symlink_to("."), "pipelines/loop: a link to a folder that it is in"),
    "env": (lambda it: it.symlink_to("../.env"), "which is hidden"),
    "key": (lambda it: it.symlink_to("../key.pem"), "is by its name a file of secrets"),
    "pipe": (os.mkfifo, "pipelines/pipe: not a regular file"),
    "model.bin": (large, "the bundle is larger than 512 MiB"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_fail_or_leak_is_refused_in_one_line(root: Path, name: str) -> None:
    make, problem = REFUSED[name]
    for secret in (".env", "key.pem"):
        (root / secret).write_text("x")
    make(root / "pipelines" / name)

    with pytest.raises(BundleError) as refused:
        names(root)

    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["pipelines", "functions/greet.py", "alone.py"])
def test_what_is_itself_a_link_out_of_the_repository_is_refused(
    root: Path, tmp_path: Path, name: str
) -> None:
    (root / "alone.py").touch()
    (root / name).rename(tmp_path / "outside")
    (root / name).symlink_to(tmp_path / "outside")

    with pytest.raises(BundleError, match=f"^{name}: a link out of the repository"):
        names(root, "alone")


def test_words_before_a_key_are_no_key(root: Path) -> None:
    (root / "pipelines" / "keys.py").write_text("BEGIN = '-----BEGIN PRIVATE KEY-----'\n")

    assert "pipelines/keys.py" in names(root)


def test_a_file_of_a_thousand_branches_is_read_as_any_other(root: Path) -> None:
    branches = "".join(f"elif x == {n}:\n    pass\n" for n in range(1500))
    text = f"x = 1\nif x:\n    pass\n{branches}else:\n    import nowhere\nPATTERN = '\\d'\n"
    (root / "pipelines" / "generated.py").write_text(text)

    contents = sources(root, ["greet"], "pipelines.catalog", root / "shared/leasehold")

    (line,) = missing_imports(contents, ("pipelines/generated",), Modules([]))
    assert line.startswith("pipelines/generated.py:3005 imports nowhere, which requirements.txt")
