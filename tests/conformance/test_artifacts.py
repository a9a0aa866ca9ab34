"""The artifacts port: named bytes, whole or not there."""

import gzip
import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from leasehold.errors import ArtifactNameError, ArtifactNotFoundError, StoreUnavailableError
from leasehold.ports.artifacts import Artifacts

CONTENTS = {
    "nothing": b"",
    "a line": b"a line\n",
    "line ends": b"\r\n\n\r\x1a\x00",
    "every byte": bytes(range(256)) * 16,
    "no text": b"\xff\xfe\xc3\x28",
    "a megabyte": b"0123456789abcdef" * 65_536,
}

REFUSED = {
    "empty": "",
    "absolute": "/etc/passwd",
    "up": "../secret",
    "up in the middle": "runs/../../secret",
    "only up": "..",
    "here": "runs/./a",
    "an empty part": "runs//a",
    "an empty end": "runs/a/",
    "a backslash": "runs\\a",
    "a line end": "runs/a\nb",
    "a zero": "runs/a\x00b",
    "delete": "runs/a\x7f",
    "a part too long": "runs/" + "x" * 201,
    "a wide part too long": "runs/" + "東" * 67,
    "too long": "/".join(["x" * 100] * 10),
    "a wide name too long": "/".join(["東" * 60] * 6),
    "a lone surrogate": "runs/\ud800",
    "a byte that is no text": "runs/\udcff",
    "the folder of unfinished writes": ".unfinished/a",
}

ALLOWED = {
    "one part": "report.md",
    "deep": "runs/r-1/values/extract-0123456789abcdef.json",
    "dots": "runs/..a/.b./...",
    "unicode": "runs/Zürich 東京/🙂.md",
    "odd characters": "runs/a b/'quoted' \"double\" #1?&%20:*|<>.md",
    "a long part": "runs/" + "x" * 200,
    "a long name": "/".join(["x" * 100] * 9 + ["x" * 91]),
    "unfinished elsewhere": "runs/.unfinished/a",
}


def taken(call: Callable[[str], object]) -> list[str]:
    """The names to be refused that a call takes all the same."""
    found = []
    for kind, name in REFUSED.items():
        with suppress(ArtifactNameError):
            call(name)
            found.append(kind)
    return found


def test_what_is_put_comes_back_byte_for_byte(artifacts: Artifacts, unique: str) -> None:
    for kind, data in CONTENTS.items():
        artifacts.put(f"runs/{unique}/{kind}", data)

        assert artifacts.get(f"runs/{unique}/{kind}") == data, kind


def test_put_answers_the_address(artifacts: Artifacts, unique: str) -> None:
    """People follow it: it names the artifact."""
    address = artifacts.put(f"runs/{unique}/report.md", b"# Report")

    assert address.endswith(f"runs/{unique}/report.md")


def test_a_second_put_replaces_the_first_value(artifacts: Artifacts, unique: str) -> None:
    artifacts.put(f"runs/{unique}/a", b"the first, which is longer")

    artifacts.put(f"runs/{unique}/a", b"the second")

    assert artifacts.get(f"runs/{unique}/a") == b"the second"
    assert list(artifacts.list(f"runs/{unique}")) == [f"runs/{unique}/a"]


def test_what_has_a_name_exists(artifacts: Artifacts, unique: str) -> None:
    artifacts.put(f"runs/{unique}/a", b"")

    assert artifacts.exists(f"runs/{unique}/a")
    assert not artifacts.exists(f"runs/{unique}/b")
    assert not artifacts.exists(f"runs/{unique}/a/b")
    assert not artifacts.exists(f"runs/{unique}")


@pytest.mark.parametrize(
    "name", ["b", "a/b", "a/b/c", ""], ids=["beside", "below", "deep", "folder"]
)
def test_what_is_not_there_is_told(artifacts: Artifacts, unique: str, name: str) -> None:
    artifacts.put(f"runs/{unique}/a", b"")
    wanted = f"runs/{unique}/{name}".removesuffix("/")

    with pytest.raises(ArtifactNotFoundError) as raised:
        artifacts.get(wanted)

    assert raised.value.details["name"] == wanted


def test_a_name_that_could_leave_its_run_is_refused(artifacts: Artifacts) -> None:
    assert taken(lambda name: artifacts.put(name, b"")) == []
    assert taken(artifacts.get) == []
    assert taken(artifacts.exists) == []


def test_a_prefix_that_could_leave_the_store_is_refused(artifacts: Artifacts) -> None:
    for name in ("..", "runs/..", "/", "runs/", "runs\\r-1", ".unfinished/x"):
        with pytest.raises(ArtifactNameError):
            artifacts.list(name)


def test_a_name_of_plain_parts_is_taken(artifacts: Artifacts, unique: str) -> None:
    for kind, name in ALLOWED.items():
        assert len(name.encode()) <= 1000

        artifacts.put(name, unique.encode())

        assert artifacts.get(name) == unique.encode(), kind
        assert artifacts.exists(name), kind
        assert name in artifacts.list(""), kind


def test_what_is_opened_is_what_was_put_and_its_size(artifacts: Artifacts, unique: str) -> None:
    for kind, data in CONTENTS.items():
        artifacts.put(f"runs/{unique}/{kind}", data)

        with artifacts.open(f"runs/{unique}/{kind}") as content:
            assert content.size == len(data), kind
            assert b"".join(content.blocks) == data, kind


def test_a_large_artifact_is_read_in_blocks(artifacts: Artifacts, unique: str) -> None:
    """It is never in memory as a whole."""
    data = bytes(range(256)) * 36 * 1024
    artifacts.put(f"runs/{unique}/a", data)

    with artifacts.open(f"runs/{unique}/a") as content:
        blocks = list(content.blocks)

    assert max(map(len, blocks)) <= 4 * 1024 * 1024
    assert b"".join(blocks) == data


def test_what_is_replaced_while_it_is_read_is_never_a_mixture(
    artifacts: Artifacts, unique: str
) -> None:
    """The reader gets the first content whole, or learns that it cannot."""
    first = b"1" * 9 * 1024 * 1024
    artifacts.put(f"runs/{unique}/a", first)

    with artifacts.open(f"runs/{unique}/a") as content:
        read = next(content.blocks)
        artifacts.put(f"runs/{unique}/a", b"2" * len(first))
        try:
            read += b"".join(content.blocks)
        except StoreUnavailableError:
            assert first.startswith(read)
        else:
            assert read == first


def test_what_is_not_there_cannot_be_opened(artifacts: Artifacts, unique: str) -> None:
    artifacts.put(f"runs/{unique}/a/b", b"")

    for name in (f"runs/{unique}/b", f"runs/{unique}/a"):
        with pytest.raises(ArtifactNotFoundError), artifacts.open(name):
            pass


def test_a_refused_name_is_not_opened(artifacts: Artifacts) -> None:
    def open_it(name: str) -> None:
        with artifacts.open(name):
            pass

    assert taken(open_it) == []


def test_the_sizes_of_a_folder_stand_with_its_names(artifacts: Artifacts, unique: str) -> None:
    for name, size in (("b", 3), ("a/z", 0), ("ä", 70_000)):
        artifacts.put(f"runs/{unique}/{name}", b"x" * size)

    found = artifacts.sizes(f"runs/{unique}")

    expected = [("a/z", 0), ("b", 3), ("ä", 70_000)]
    assert list(found.items()) == [(f"runs/{unique}/{name}", size) for name, size in expected]
    assert artifacts.sizes(f"runs/{unique}-none") == {}


def test_names_below_a_folder_are_listed_whole_and_sorted(
    artifacts: Artifacts, unique: str
) -> None:
    run = f"runs/{unique}"
    for name in ("b", "a/z", "a/b/c", "a.md", "a-1", "ä", "B"):
        artifacts.put(f"{run}/{name}", b"")

    found = artifacts.list(run)

    expected = ["B", "a-1", "a.md", "a/b/c", "a/z", "b", "ä"]
    assert list(found) == [f"{run}/{name}" for name in expected]


def test_a_folder_is_listed_without_those_that_begin_as_it_does(
    artifacts: Artifacts, unique: str
) -> None:
    for run in (unique, f"{unique}0", f"{unique}.old"):
        artifacts.put(f"runs/{run}/a", b"")

    assert list(artifacts.list(f"runs/{unique}")) == [f"runs/{unique}/a"]


def test_a_folder_that_is_not_there_lists_nothing(artifacts: Artifacts, unique: str) -> None:
    assert list(artifacts.list(f"runs/{unique}")) == []


def test_many_names_are_all_listed(artifacts: Artifacts, unique: str) -> None:
    names = [f"runs/{unique}/{number // 20:02d}/{number:04d}" for number in range(60)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: artifacts.put(name, b""), names))

    assert list(artifacts.list(f"runs/{unique}")) == names


def test_a_reader_never_sees_half_of_a_value(artifacts: Artifacts, unique: str) -> None:
    """Two contents of different lengths: whatever is read is one of them, whole."""
    name = f"runs/{unique}/a"
    contents = [b"a" * 300_000, b"b" * 100_000]
    artifacts.put(name, contents[0])
    done = threading.Event()

    def read() -> int:
        reads = 0
        while not done.is_set():
            assert artifacts.get(name) in contents
            assert list(artifacts.list(f"runs/{unique}")) == [name]
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as threads:
        reading = [threads.submit(read) for _ in range(2)]
        try:
            for number in range(20):
                artifacts.put(name, contents[number % 2])
        finally:
            done.set()

    assert all(each.result() > 0 for each in reading)


def test_of_those_that_put_at_once_one_is_there_whole(artifacts: Artifacts, unique: str) -> None:
    contents = [bytes([number]) * 50_000 for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda data: artifacts.put(f"runs/{unique}/a", data), contents))

    assert artifacts.get(f"runs/{unique}/a") in contents


def test_what_is_deleted_is_gone_and_its_neighbours_stay(artifacts: Artifacts, unique: str) -> None:
    """A later part deletes single values; whatever lay beside one is found as before."""
    for name in ("a", "ab", "b/c"):
        artifacts.put(f"runs/{unique}/{name}", b"x")

    artifacts.delete(f"runs/{unique}/a")

    assert artifacts.list(f"runs/{unique}") == [f"runs/{unique}/ab", f"runs/{unique}/b/c"]
    with pytest.raises(ArtifactNotFoundError) as missing:
        artifacts.get(f"runs/{unique}/a")
    assert not missing.value.details.get("is_empty")


def test_a_folder_is_deleted_with_all_below_it(artifacts: Artifacts, unique: str) -> None:
    for name in (f"{unique}/files/a", f"{unique}/values/deep/b", f"{unique}-other/files/a"):
        artifacts.put(f"runs/{name}", b"x")

    artifacts.delete(f"runs/{unique}")

    assert artifacts.list(f"runs/{unique}") == []
    assert artifacts.list(f"runs/{unique}-other") == [f"runs/{unique}-other/files/a"]


def test_to_delete_what_is_not_there_is_fine(artifacts: Artifacts, unique: str) -> None:
    artifacts.put(f"runs/{unique}/a", b"x")

    for name in (f"runs/{unique}/b", f"runs/{unique}-no/files/a", f"no-{unique}"):
        artifacts.delete(name)
        artifacts.delete(name)

    assert artifacts.get(f"runs/{unique}/a") == b"x"


def test_a_file_is_deleted_alone(artifacts: Artifacts, unique: str) -> None:
    """Files below its name stay, and it need not exist."""
    for name in ("a", "b/c"):
        artifacts.put(f"runs/{unique}/{name}", b"x")

    for name in ("a", "a", "b", "no/such"):
        artifacts.delete_file(f"runs/{unique}/{name}")

    assert artifacts.list(f"runs/{unique}") == [f"runs/{unique}/b/c"]


def test_a_name_that_could_lead_astray_deletes_nothing(artifacts: Artifacts) -> None:
    assert taken(artifacts.delete) == []
    assert taken(artifacts.delete_file) == []


TEXT = b"A line that comes again and again, as lines of a log do.\n" * 4_000
NOISE = hashlib.shake_256(b"noise").digest(200_000)


def test_what_is_compressed_reads_as_before(artifacts: Artifacts, unique: str) -> None:
    name = f"runs/{unique}/files/deep/log ä.txt"
    artifacts.put(name, TEXT)

    for _ in range(2):
        artifacts.compress(f"runs/{unique}/files")

        assert artifacts.get(name) == TEXT
        with artifacts.open(name) as content:
            assert content.size == len(TEXT)
            assert b"".join(content.blocks) == TEXT
        assert artifacts.exists(name)
        assert artifacts.sizes(f"runs/{unique}") == {name: len(TEXT)}
        assert artifacts.list("") is not None


def test_what_gains_nothing_is_left_as_it_is(artifacts: Artifacts, unique: str) -> None:
    contents = {"noise": NOISE, "own.gz": gzip.compress(TEXT), "small": b"a" * 1000, "empty": b""}
    for name, data in contents.items():
        artifacts.put(f"runs/{unique}/files/{name}", data)

    artifacts.compress(f"runs/{unique}/files")

    for name, data in contents.items():
        assert artifacts.get(f"runs/{unique}/files/{name}") == data
    assert artifacts.sizes(f"runs/{unique}") == {
        f"runs/{unique}/files/{name}": len(contents[name]) for name in sorted(contents)
    }


def test_a_file_of_the_users_own_with_the_ending_of_gzip_is_another_file(
    artifacts: Artifacts, unique: str
) -> None:
    own = gzip.compress(b"something else")
    artifacts.put(f"runs/{unique}/log.txt", TEXT)
    artifacts.put(f"runs/{unique}/log.txt.gz", own)

    artifacts.compress(f"runs/{unique}")

    assert artifacts.get(f"runs/{unique}/log.txt") == TEXT
    assert artifacts.get(f"runs/{unique}/log.txt.gz") == own


def test_what_is_put_after_it_was_compressed_takes_its_place(
    artifacts: Artifacts, unique: str
) -> None:
    name = f"runs/{unique}/a"
    artifacts.put(name, TEXT)
    artifacts.compress(f"runs/{unique}")

    artifacts.put(name, b"later")

    assert artifacts.get(name) == b"later"
    assert artifacts.sizes(f"runs/{unique}") == {name: 5}


def test_what_is_compressed_is_deleted_as_before(artifacts: Artifacts, unique: str) -> None:
    run = f"runs/{unique}"
    for name in ("a", "b", "c/d"):
        artifacts.put(f"{run}/{name}", TEXT)
    artifacts.compress(run)

    artifacts.delete(f"{run}/a")
    artifacts.delete_file(f"{run}/b")
    assert artifacts.list(run) == [f"{run}/c/d"]

    artifacts.delete(run)
    assert artifacts.list(run) == []


def test_a_large_file_is_compressed_and_read_in_blocks(artifacts: Artifacts, unique: str) -> None:
    data = TEXT * 40 + NOISE
    artifacts.put(f"runs/{unique}/a", data)

    artifacts.compress(f"runs/{unique}")

    with artifacts.open(f"runs/{unique}/a") as content:
        blocks = list(content.blocks)
    assert max(map(len, blocks)) <= 4 * 1024 * 1024
    assert b"".join(blocks) == data


def test_nothing_is_there_to_be_compressed(artifacts: Artifacts, unique: str) -> None:
    artifacts.compress(f"runs/{unique}/files")

    assert artifacts.list(f"runs/{unique}") == []


def test_a_name_that_could_lead_astray_compresses_nothing(artifacts: Artifacts) -> None:
    assert taken(artifacts.compress) == []


def test_to_try_a_store_out_leaves_nothing(artifacts: Artifacts) -> None:
    before = artifacts.list("")

    artifacts.try_out()

    assert artifacts.list("") == before
