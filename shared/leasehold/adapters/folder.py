"""Artifacts in a folder: each write is whole or not there, because it is renamed into place."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from leasehold.adapters.compression import SUFFIX, blocks_of, compress_file, decompressed, size_of
from leasehold.adapters.plain_files import (
    PRIVATE,
    check_folder,
    files_below,
    is_folder,
    make_folder,
    open_file,
    open_folder,
    open_part,
)
from leasehold.domain.artifact_name import (
    UNFINISHED,
    check_artifact_name,
    is_artifact_name,
    kind_folder,
)
from leasehold.errors import ArtifactNameError, ArtifactNotFoundError, StoreUnavailableError
from leasehold.ports.artifacts import ArtifactContent
from leasehold.ports.clock import Clock

#: A half-written file this old belongs to an interrupted write; no write takes an hour.
ORPHAN_AGE_S: Final = 3600.0

_PRIVATE_FILE: Final = 0o600
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

#: Not a compressed file: a folder of such a name belongs to other programs and is left alone.
_NO_FILE: Final = (FileNotFoundError, IsADirectoryError)

_BEHIND_LINK: Final = "one of its folders is a link or a file"


class FolderArtifacts:
    """The artifacts port on a folder.

    Whoever can write into the folder may plant links and pipes in it: none is followed or opened.

    Args:
        root: the folder; the first write makes it, for its owner alone. Leftovers of interrupted
            writes are deleted. Once it was seen to hold something, it is not made again: if it is
            gone, that is an outage.
        clock: gives the age of leftovers.

    Raises:
        StoreUnavailableError: the folder cannot be made or written.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root.absolute()
        self._unfinished = self._root / UNFINISHED
        self._was_there = False
        self._find_mark: Callable[[bool], Path | None] = lambda _: None
        self._mark: str | None = None
        self._swept_at = 0.0
        with self._translated(self._root):
            is_folder(self._unfinished)  # what is below a link is not ours to write or to sweep
            _try_out(self._unfinished)
            self.sweep(before=clock.now().timestamp() - ORPHAN_AGE_S)
            self._is_there()
        self._clock = clock

    def know_by_mark(self, find: Callable[[bool], Path | None]) -> None:
        """Have each call look whether the folder has its mark; where it has not, it is an outage.

        Args:
            find: returns the mark, which the folder has; None: it needs none now. It is called
                while none is known, and where the folder does not have it, with whether it may
                write one.
        """
        self._find_mark = find

    def check_mark(self, *, may_write: bool) -> None:
        """Look whether the folder is the one that is known; a name is looked up, and no more.

        Args:
            may_write: whether a folder that may be the store, and has no mark, is given one.

        Raises:
            StoreUnavailableError: it is not the one.
        """
        if self._mark is None or not os.path.lexists(self._mark):
            found = self._find_mark(may_write)
            self._mark = None if found is None else str(found)

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def put(self, name: str, data: bytes) -> str:
        """Store `data` whole or not at all; return its path."""
        path = self._path(name)
        *folders, last = name.split("/")
        with self._reached(path, puts=True), contextlib.ExitStack() as opened:
            self._make_ready()
            unfinished = open_folder(self._root, [UNFINISHED])
            opened.callback(os.close, unfinished)
            folder = self._made_folder(name, folders)
            opened.callback(os.close, folder)
            temporary = f"tmp-{secrets.token_hex(8)}"
            try:
                handle = os.open(temporary, _NEW_FILE, _PRIVATE_FILE, dir_fd=unfinished)
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    now = os.fstat(file.fileno()).st_mtime
                try:
                    os.rename(temporary, last, src_dir_fd=unfinished, dst_dir_fd=folder)
                except IsADirectoryError:
                    raise self._taken(name) from None
                with contextlib.suppress(*_NO_FILE):  # what it takes the place of
                    os.unlink(last + SUFFIX, dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=unfinished)
                raise
            os.fsync(folder)
        self._sweep_each_hour(now)
        return str(path)

    def get(self, name: str) -> bytes:
        """Return what was stored."""
        with self.open(name) as content:
            return b"".join(content.blocks)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[ArtifactContent]:
        """Open the file as it is now; what replaces it is another file."""
        with self._opened(name) as (file, is_compressed):
            size = size_of(file) if is_compressed else os.fstat(file.fileno()).st_size
            blocks = decompressed(blocks_of(file), size) if is_compressed else blocks_of(file)
            yield ArtifactContent(size, self._blocks(name, blocks))

    def exists(self, name: str) -> bool:
        """Return whether something has that name."""
        try:
            with self._opened(name):
                return True
        except ArtifactNotFoundError:
            return False

    def try_out(self) -> None:
        """Write a file that has no name: one that is mounted read-only takes none."""
        with self._reached(self._root):
            self._is_there()
            _try_out(self._unfinished)

    def delete(self, name: str) -> None:
        """Delete what has that name, and all below it where it is a folder.

        The folder that it stands in goes with it where nothing else is there: that of a run.
        """
        path = self._path(name)
        with self._reached(path):
            if not self._is_there():
                return
            with contextlib.suppress(FileNotFoundError), self._folder_of(name) as folder:
                with contextlib.suppress(*_NO_FILE):
                    os.unlink(path.name + SUFFIX, dir_fd=folder)
                with contextlib.suppress(FileNotFoundError):
                    _delete(path.name, folder)
                os.fsync(folder)
            above = name.rpartition("/")[0]
            if "/" in above:  # a folder at the top of the store stays
                with contextlib.suppress(OSError), self._folder_of(above) as folder:
                    os.rmdir(path.parent.name, dir_fd=folder)

    def delete_file(self, name: str) -> None:
        """Delete what has that name alone, and leave it to the system when that is durable."""
        path = self._path(name)
        with (
            self._reached(path),
            contextlib.suppress(FileNotFoundError, IsADirectoryError),
            self._folder_of(name) as folder,
        ):
            with contextlib.suppress(*_NO_FILE):
                os.unlink(path.name + SUFFIX, dir_fd=folder)
            os.unlink(path.name, dir_fd=folder)

    def compress(self, prefix: str, texts: Sequence[str] = ()) -> None:
        """Compress the files below the folder `prefix`; of those that cannot be, raise the first.

        Each is as it was, or as `adapters/compression.py` has it. One that `texts` name is as
        it was: its address is its path, and a person may open it.
        """
        start = self._path(prefix)
        failures: list[OSError] = []
        with self._reached(start):
            for name in self._plain_below(start):
                if any(name in text for text in texts):
                    continue
                try:
                    compress_file(self._root, name, self._unfinished)
                except OSError as error:
                    failures.append(error)
            if failures:
                raise failures[0]

    def _plain_below(self, start: Path) -> Sequence[str]:
        """Return the names of files that are not compressed."""
        return [name for name in self._stored_below(start) if is_artifact_name(name)]

    def _stored_below(self, start: Path) -> Sequence[str]:
        """Return the names of all files as stored; nothing, where there is no such folder."""
        try:
            check_folder(self._root, start.relative_to(self._root).parts)
        except (FileNotFoundError, NotADirectoryError):
            self._is_there()  # else it is the store that is away
            return ()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            name = start.relative_to(self._root).as_posix()
            raise ArtifactNameError(name=name, problem=_BEHIND_LINK) from None
        return [path.relative_to(self._root).as_posix() for path, _ in files_below(start)]

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names below the folder `prefix`, sorted."""
        return [*self.sizes(prefix)]

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the names below the folder `prefix`, sorted, and their sizes."""
        start = self._path(prefix) if prefix else self._root
        with self._reached(start):
            found = self._sizes_below(start) if self._is_there() else {}
        return {name: found[name] for name in sorted(found) if is_artifact_name(name)}

    def tidy_up(self) -> None:
        """Delete what interrupted writes left."""
        with self._reached(self._unfinished):
            self.sweep(before=self._clock.now().timestamp() - ORPHAN_AGE_S)

    def sweep(self, *, before: float) -> int:
        """Delete what interrupted writes left before this time (epoch seconds); return how many."""
        try:
            folder = open_folder(self._root, [UNFINISHED])
        except (FileNotFoundError, NotADirectoryError):
            return 0
        swept = 0
        try:
            for name in os.listdir(folder):  # noqa: PTH208 - by its descriptor
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if found.st_mtime < before and not stat.S_ISDIR(found.st_mode):
                        os.unlink(name, dir_fd=folder)
                        swept += 1
        finally:
            os.close(folder)
        return swept

    def _sweep_each_hour(self, now: float) -> None:
        """Sweep for as long as the process lives: a write may be cut while it does, or just before.

        Args:
            now: by the clock that writes the times of files, which may be another machine's.
        """
        if now - self._swept_at < ORPHAN_AGE_S:
            return
        self._swept_at = now
        with contextlib.suppress(OSError):  # what was to be stored is stored
            self.sweep(before=now - ORPHAN_AGE_S)

    def _path(self, name: str) -> Path:
        check_artifact_name(name)
        return self._root / name

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[IO[bytes], bool]]:
        """Yield the file of a name and whether it is compressed, or raise what `get` raises."""
        path = self._path(name)
        with self._reached(path):
            try:
                file, is_compressed = self._plain_or_compressed(name)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                # each run has a folder for each kind, which is never removed alone: without it this
                # is not the store that had the value, or a new one that was begun in its place
                kind = self._root / kind_folder(name)
                is_empty = not self._is_there() or not kind.is_dir()
                raise ArtifactNotFoundError(
                    name=name, store=str(self._root), is_empty=is_empty
                ) from None
        self._was_there = True
        with file:
            yield file, is_compressed

    def _plain_or_compressed(self, name: str) -> tuple[IO[bytes], bool]:
        """Open the file of a name; one that is compressed or put meanwhile is missed by no look."""
        for stored in (name, name + SUFFIX):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                return open_file(self._root, stored), stored != name
        return open_file(self._root, name), False

    def _blocks(self, name: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            with self._translated(self._root / name):
                block = next(blocks, None)
            if block is None:
                return
            yield block

    def _sizes_below(self, start: Path) -> dict[str, int]:
        try:
            check_folder(self._root, start.relative_to(self._root).parts)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        stored = {
            path.relative_to(self._root).as_posix(): size for path, size in files_below(start)
        }
        found = {name: size for name, size in stored.items() if not name.endswith(SUFFIX)}
        for name in stored.keys() - found.keys():
            plain = name.removesuffix(SUFFIX)
            if plain not in found:
                with contextlib.suppress(FileNotFoundError), open_file(self._root, name) as file:
                    found[plain] = size_of(file)
        return found

    def _is_there(self) -> bool:
        """Return whether the store holds anything; a new one is empty.

        Raises:
            NotADirectoryError, FileNotFoundError: something else is in its place, or it held
                something before: it was moved away, or is not mounted.
        """
        was_there = self._was_there  # before the look: another thread may write the first file
        try:
            with os.scandir(self._root) as entries:
                holds = next(entries, None) is not None
        except FileNotFoundError:
            holds = False
        if not holds and was_there:
            problem = "the folder is gone or empty, and was not before"
            raise FileNotFoundError(errno.ENOENT, problem, str(self._root))
        if holds:
            self._was_there = True
        return holds

    def _make_ready(self) -> None:
        """Make the folder, unless it was there before: an outage is no reason to start over."""
        if is_folder(self._unfinished):
            pass
        elif self._is_there():
            self._unfinished.mkdir(mode=PRIVATE, exist_ok=True)
        else:
            make_folder(self._unfinished)
        self._was_there = True

    def _made_folder(self, name: str, parts: Sequence[str]) -> int:
        """Return a descriptor of the folder that a name stands in; what is not there is made.

        Each part is opened in the one above it, so a link is followed at none of them.
        """
        folder = open_folder(self._root, [])
        for part in parts:
            try:
                inner = self._made_part(part, folder)
            except (FileExistsError, NotADirectoryError):
                raise self._taken(name) from None
            finally:
                os.close(folder)
            folder = inner
        return folder

    def _made_part(self, part: str, folder: int) -> int:
        try:
            return open_part(part, folder)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another write has just made it
                os.mkdir(part, PRIVATE, dir_fd=folder)
            inner = open_part(part, folder)
            os.fsync(folder)
            return inner

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Iterator[int]:
        """Open the folder that a name stands in, by no link that leads out of the store."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in name.split("/")[:-1]:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise ArtifactNameError(name=name, problem=_BEHIND_LINK) from None
        finally:
            os.close(folder)

    def _taken(self, name: str) -> ArtifactNameError:
        """Return the error of a name that no repetition makes free."""
        problem = "a folder has that name, or a file the name of one of its folders"
        self._is_there()  # else it is the store that is away
        return ArtifactNameError(name=name, problem=problem)

    @contextlib.contextmanager
    def _reached(self, path: Path, *, puts: bool = False) -> Iterator[None]:
        """Look whether it is the folder that is known, and translate errors of the system."""
        self.check_mark(may_write=puts)
        with self._translated(path):
            yield

    @contextlib.contextmanager
    def _translated(self, path: Path) -> Iterator[None]:
        """Translate errors of the system to the port's."""
        try:
            yield
        except OSError as error:
            problem = f"{error.strerror or error} ({path})"
            raise StoreUnavailableError(store=str(self._root), problem=problem) from error


def _try_out(folder: Path) -> None:
    """Write to the folder; one that is not there is tried out in a folder beside it.

    Nothing is left of either. The folder itself is not made: to remove it again could take it
    away from another process that has just found it.
    """
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if there == folder:
        with tempfile.TemporaryFile(dir=folder):
            return
    with tempfile.TemporaryDirectory(prefix=".leasehold-", dir=there) as beside:
        tried = Path(beside) / folder.relative_to(there)
        tried.mkdir(parents=True)
        with tempfile.TemporaryFile(dir=tried):
            pass


def _delete(name: str, folder: int) -> None:
    """Delete a file, a link or a folder of this name in an open folder; it follows no link."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
