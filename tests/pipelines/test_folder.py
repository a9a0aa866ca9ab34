import os
from pathlib import Path

import pytest

from leasehold import PermanentError
from pipelines.review.documents import read_files
from pipelines.review.folder import Found, find
from pipelines.review.models import ReviewInput


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")


def found_in(folder: Path) -> Found:
    return find(ReviewInput(folder=str(folder)))


def names(found: Found) -> list[str]:
    return [file.relative_to(found.root).as_posix() for file in found.files]


def test_markdown_is_found_in_every_folder_the_highest_first(tmp_path: Path) -> None:
    write(tmp_path, "b/deep/x.md", "b/a.MARKDOWN", "README.md", "notes.txt", "b/z.mkd")

    assert names(found_in(tmp_path)) == ["README.md", "b/a.MARKDOWN", "b/z.mkd", "b/deep/x.md"]


def test_hidden_installed_and_built_things_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, "a.md", ".git/b.md", "node_modules/x/c.md", "sub/build/d.md", "env/e.md")
    (tmp_path / "env" / "pyvenv.cfg").touch()

    found = found_in(tmp_path)

    assert names(found) == ["a.md"]
    assert sorted(found.skipped_folders) == ["env/", "node_modules/", "sub/build/"]


def test_a_loop_of_linked_folders_ends(tmp_path: Path) -> None:
    write(tmp_path, "sub/a.md")
    (tmp_path / "sub" / "up").symlink_to(tmp_path, target_is_directory=True)

    found = found_in(tmp_path)

    assert names(found) == ["sub/a.md"]
    assert found.skipped_folders == ["sub/up/"]


def test_a_file_that_links_to_itself_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")

    found = found_in(tmp_path)

    assert names(found) == ["a.md"]
    assert [(each.code, each.document) for each in found.findings] == [
        ("unreadable", "gone.md"),
        ("unreadable", "loop.md"),
    ]


def test_a_link_to_a_file_that_is_read_anyway_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / "b.md").symlink_to("a.md")

    assert names(found_in(tmp_path)) == ["a.md"]


def test_one_file_may_be_given_instead_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md")

    found = found_in(tmp_path / "b.md")

    assert (found.root, names(found)) == (tmp_path, ["b.md"])


def test_files_over_the_bounds_are_left_out_and_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md", "c.md")
    (tmp_path / "big.md").write_text("x" * 1001)

    found = find(ReviewInput(folder=str(tmp_path), max_files=2, max_file_bytes=1000))

    assert names(found) == ["a.md", "b.md"]
    assert [each.message for each in found.findings] == [
        "The file has 1,001 bytes, more than the 1,000 that are read; it is not reviewed.",
        (
            "1 of 4 Markdown files are not reviewed: the bounds are 2 files and 20,000,000 bytes "
            "in all. Those deepest in the folder were left out."
        ),
    ]


def test_a_file_that_is_not_utf8_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / "latin.md").write_bytes("# Größe".encode("latin-1"))

    pages, findings = read_files(found_in(tmp_path))

    assert list(pages) == ["a.md"]
    assert [(each.document, each.message) for each in findings] == [
        ("latin.md", "The file is not UTF-8 (byte 0xf6 at offset 4); it is not reviewed.")
    ]


def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"does not exist; looked for .*/gone") as refusal:
        found_in(tmp_path / "gone")

    assert refusal.value.code == "folder_missing"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()

    with pytest.raises(PermanentError, match="is not a folder or a Markdown file"):
        found_in(tmp_path / "a.txt")


@pytest.mark.parametrize("folder", ["bad\0name", "x" * 5000, "~no-such-user-here/docs"])
def test_a_folder_name_that_cannot_be_is_refused(folder: str) -> None:
    with pytest.raises(PermanentError):
        find(ReviewInput(folder=folder))


def test_a_folder_without_markdown_is_refused_and_says_where_it_did_not_look(
    tmp_path: Path,
) -> None:
    write(tmp_path, "build/a.md", "b.txt")

    with pytest.raises(PermanentError, match=r"not looked into: build/") as refusal:
        found_in(tmp_path)

    assert refusal.value.code == "no_markdown"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "closed/b.md")
    (tmp_path / "closed").chmod(0)

    found = found_in(tmp_path)

    (tmp_path / "closed").chmod(0o755)
    assert [(each.code, each.document) for each in found.findings] == [("unreadable", "closed/")]
