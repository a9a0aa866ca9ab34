import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold import PermanentError
from pipelines.review.extraction import read_pages
from pipelines.review.files import MarkdownFiles, find_markdown
from pipelines.review.models import ReviewInput


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")


def found_in(folder: Path) -> MarkdownFiles:
    return find_markdown(ReviewInput(folder=str(folder)))


def test_markdown_is_found_in_every_folder_the_highest_first(tmp_path: Path) -> None:
    write(tmp_path, "b/deep/x.md", "b/a.MARKDOWN", "README.md", "notes.txt", "b/z.mkd")

    assert found_in(tmp_path).files == ["README.md", "b/a.MARKDOWN", "b/z.mkd", "b/deep/x.md"]


def test_hidden_installed_and_built_things_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, "a.md", ".git/b.md", "node_modules/x/c.md", "sub/build/d.md", "env/e.md")
    (tmp_path / "env" / "pyvenv.cfg").touch()

    found = found_in(tmp_path)

    assert found.files == ["a.md"]
    assert sorted(found.skipped_folders) == ["env/", "node_modules/", "sub/build/"]


def test_a_loop_of_linked_folders_ends(tmp_path: Path) -> None:
    write(tmp_path, "sub/a.md")
    (tmp_path / "sub" / "up").symlink_to(tmp_path, target_is_directory=True)

    found = found_in(tmp_path)

    assert found.files == ["sub/a.md"]
    assert found.skipped_folders == ["sub/up/"]


def test_a_file_that_links_to_itself_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / "loop.md").symlink_to(tmp_path / "loop.md")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")

    found = found_in(tmp_path)

    assert found.files == ["a.md"]
    assert [(each.code, each.document) for each in found.findings] == [
        ("linked", "gone.md"),
        ("linked", "loop.md"),
    ]


def test_a_link_to_a_file_that_is_read_anyway_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / "b.md").symlink_to("a.md")

    assert found_in(tmp_path).files == ["a.md"]


def test_a_real_file_is_not_hidden_by_a_link_to_it_that_comes_first(tmp_path: Path) -> None:
    write(tmp_path, "deep/z.md")
    (tmp_path / "a.md").symlink_to("deep/z.md")

    found = found_in(tmp_path)

    assert (found.files, found.findings) == (["deep/z.md"], [])


@pytest.mark.parametrize("target", ["/etc/passwd", "/proc/self/environ", "../secret.md"])
def test_a_link_that_leads_out_of_the_folder_is_a_finding_and_is_not_read(
    tmp_path: Path, target: str
) -> None:
    write(tmp_path, "secret.md", "docs/a.md")
    (tmp_path / "docs" / "b.md").symlink_to(target)

    found = found_in(tmp_path / "docs")

    assert found.files == ["a.md"]
    assert [(each.code, each.document, each.message) for each in found.findings] == [
        ("linked", "b.md", "It is not read: it is a link to what is not reviewed.")
    ]


def test_a_link_into_what_is_not_reviewed_is_a_finding(tmp_path: Path) -> None:
    write(tmp_path, "a.md", ".hidden/x.md")
    (tmp_path / "b.md").symlink_to(".hidden/x.md")

    found = found_in(tmp_path)

    assert (found.files, [each.document for each in found.findings]) == (["a.md"], ["b.md"])


def swap_file(folder: Path) -> None:
    (folder / "sub" / "a.md").unlink()
    (folder / "sub" / "a.md").symlink_to(folder.parent / "secret.md")


def swap_folder(folder: Path) -> None:
    (folder / "sub").rename(folder / "was")
    (folder / "sub").symlink_to(folder.parent / "outside", target_is_directory=True)


def swap_for_pipe(folder: Path) -> None:
    (folder / "sub" / "a.md").unlink()
    os.mkfifo(folder / "sub" / "a.md")


@pytest.mark.parametrize("swap", [swap_file, swap_folder, swap_for_pipe])
def test_what_is_put_in_the_place_of_a_file_after_it_was_found_is_not_read(
    tmp_path: Path, swap: Callable[[Path], None]
) -> None:
    """A checked file may differ from the one that is opened by its name a moment later."""
    write(tmp_path, "secret.md", "outside/a.md", "docs/sub/a.md", "docs/b.md")
    found = found_in(tmp_path / "docs")

    swap(tmp_path / "docs")
    pages = read_pages(found, ReviewInput())

    assert list(pages) == ["b.md"]
    assert [(each.code, each.document) for each in found.findings] == [("unreadable", "sub/a.md")]


def test_pipes_and_sockets_are_findings_and_are_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe.md")

    found = found_in(tmp_path)

    assert found.files == ["a.md"]
    assert [each.message for each in found.findings] == [
        "It is not read: it is no regular file, or its name is not UTF-8."
    ]


def test_a_file_that_grew_is_not_read_beyond_the_bounds(tmp_path: Path) -> None:
    """A size is what a file says of itself; some say 0 and never end."""
    write(tmp_path, "a.md", "b.md")
    given = ReviewInput(folder=str(tmp_path), max_file_bytes=1000)
    found = find_markdown(given)

    (tmp_path / "a.md").write_text("x" * 1001)
    pages = read_pages(found, given)

    assert list(pages) == ["b.md"]
    assert [(each.code, each.document) for each in found.findings] == [("too_large", "a.md")]


def test_files_that_grew_are_not_read_beyond_the_bound_of_all(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md")
    given = ReviewInput(folder=str(tmp_path), max_total_bytes=1000)
    found = find_markdown(given)

    (tmp_path / "a.md").write_text("x" * 999)
    pages = read_pages(found, given)

    assert list(pages) == ["a.md"]
    assert [(each.code, each.document) for each in found.findings] == [("too_large", "b.md")]


def test_names_that_are_not_utf8_are_findings_and_the_run_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (tmp_path / os.fsdecode(b"b\xff.md")).touch()
    (tmp_path / os.fsdecode(b"c\xff")).mkdir()

    found = found_in(tmp_path)

    assert found.files == ["a.md"]
    assert [(each.document, each.message) for each in found.findings] == [
        ("b\ufffd.md", "It is not read: it is no regular file, or its name is not UTF-8."),
        ("c\ufffd/", "It is not read: its name is not UTF-8, or it lies 40 folders deep."),
    ]


def test_folders_too_deep_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "d/" * 41 + "b.md")

    found = found_in(tmp_path)

    assert found.files == ["a.md"]
    assert [(each.code, each.document) for each in found.findings] == [("too_many", "d/" * 41)]


def test_findings_about_many_files_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    for number in range(510):
        (tmp_path / f"{number}.md").symlink_to("/etc/passwd")

    found = found_in(tmp_path)

    assert len(found.findings) == 501
    assert found.findings[-1].message == "10 more files and folders are not read."


def test_one_file_may_be_given_instead_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md")

    found = found_in(tmp_path / "b.md")

    assert (found.root, found.files) == (tmp_path, ["b.md"])


def test_files_over_the_bounds_are_left_out_and_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md", "c.md")
    (tmp_path / "big.md").write_text("x" * 1001)

    found = find_markdown(ReviewInput(folder=str(tmp_path), max_files=2, max_file_bytes=1000))

    assert found.files == ["a.md", "b.md"]
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

    found = found_in(tmp_path)
    pages = read_pages(found, ReviewInput())

    assert list(pages) == ["a.md"]
    assert [(each.document, each.message) for each in found.findings] == [
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
        find_markdown(ReviewInput(folder=folder))


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
