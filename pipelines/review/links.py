"""Says where the links of a document lead, and whether something is there."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pipelines.review.anchors import slug
from pipelines.review.folder import SUFFIXES
from pipelines.review.models import Link

EXTERNAL: Final = re.compile(r"\A(?:[A-Za-z][A-Za-z0-9+.-]+:|//)")
ALIKE: Final = 0.75  # of difflib's ratio, from which an anchor may be meant…
TYPO: Final = 0.88  # …and a file's name
PAGE_ENDINGS: Final = (".md", "/index.md", "/README.md", "")  # of the file behind a site's page
TOP: Final = frozenset({"", "top"})  # anchors that every page has


@dataclass(frozen=True)
class Library:
    """All documents that were read. `anchors` has those of each, by its path."""

    root: Path
    anchors: Mapping[str, frozenset[str]]

    def resolve(self, document: str, line: int, target: str, *, image: bool) -> Link:
        """Say where a link of `document` leads; what is outside of this machine is not checked."""
        if EXTERNAL.match(target):
            return Link(line=line, kind="external", target=target, image=image, state="unchecked")
        place, _, fragment = target.partition("#")
        path = unquote(place.partition("?")[0])
        anchor = unquote(fragment)
        if not place and "#" in target:
            link = Link(line=line, kind="anchor", target=target, state="ok")
            return self._anchor(link, document, document, anchor)
        link = Link(line=line, kind="file", target=target, image=image, state="ok")
        if not path:
            return link.model_copy(update={"state": "broken_link"})
        found = self._find(document, path)
        if found is None:
            hint = self._similar_path(document, path, anchor)
            return link.model_copy(update={"state": "broken_link", "hint": hint})
        return self._anchor(link, document, found, anchor)

    def _anchor(self, link: Link, document: str, found: str, anchor: str) -> Link:
        if anchor in TOP or anchor.startswith(":~:"):
            return link
        known = self.anchors.get(found)
        if known is None:  # not Markdown, or not read
            return link.model_copy(update={"state": "unchecked"})
        if anchor in known:
            return link
        hint = self._similar_anchor(document, found, anchor)
        return link.model_copy(update={"state": "broken_anchor", "hint": hint})

    def _find(self, document: str, path: str) -> str | None:
        """Return what the path leads to, relative to the root."""
        for candidate in self._candidates(document, path):
            if candidate in self.anchors or _exists(self.root / candidate):
                return candidate
        return None

    def _candidates(self, document: str, path: str) -> Iterator[str]:
        """Yield where the path may lead: with `/`, to the repository or to a site's page."""
        if not path.startswith("/"):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
            return
        below = posixpath.normpath(path.strip("/"))
        pages = [below + ending for ending in PAGE_ENDINGS]
        yield from pages
        yield posixpath.join(posixpath.relpath(self._repository, self.root), below)
        for page in pages:  # the site's own root may lie deeper
            yield from (each for each in self._by_stem.get(_stem(page), ()) if _ends(each, page))

    @cached_property
    def _repository(self) -> Path:
        """The folder that `/` means in a link: the nearest one with a `.git`, or the root."""
        for folder in (self.root, *self.root.parents):
            if _exists(folder / ".git"):
                return folder
        return self.root

    @cached_property
    def _by_stem(self) -> Mapping[str, list[str]]:
        by_stem: dict[str, list[str]] = {}
        for path in self.anchors:
            by_stem.setdefault(_stem(path), []).append(path)
        return by_stem

    def _similar_path(self, document: str, path: str, anchor: str) -> str:
        if posixpath.splitext(path)[1].lower() not in {"", *SUFFIXES}:
            return ""
        stem = _stem(path)
        stems = [stem] if stem in self._by_stem else _closest(stem, self._by_stem, TYPO)
        candidates = [each for name in stems for each in self._by_stem[name] if each != document]
        if not candidates:
            return ""
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(document), path.lstrip("/")))
        best = max(candidates, key=lambda each: SequenceMatcher(None, each, wanted).ratio())
        return _relative(best, document) + (f"#{anchor}" if anchor in self.anchors[best] else "")

    def _similar_anchor(self, document: str, found: str, anchor: str) -> str:
        known = sorted(self.anchors[found])
        wanted = slug(anchor)
        begins = [each for each in known if wanted and each.startswith(wanted)]
        close = [wanted] if wanted in known else _closest(anchor, known, ALIKE)
        if close or len(begins) == 1:
            return f"#{(close or begins)[0]}"
        for other in sorted(self.anchors):
            if other != found and anchor in self.anchors[other]:
                return f"{_relative(other, document)}#{anchor}"
        return ""


def _closest(wanted: str, known: Iterable[str], likeness: float) -> list[str]:
    """Return the one that is nearest in spelling, if any is near; it begins or ends the same."""
    ends = {wanted[:1], wanted[-1:]}
    same_end = [each for each in known if not ends.isdisjoint({each[:1], each[-1:]})]
    return get_close_matches(wanted, same_end, n=1, cutoff=likeness)


def _relative(path: str, document: str) -> str:
    return posixpath.relpath(path, posixpath.dirname(document) or ".")


def _ends(path: str, end: str) -> bool:
    return path.endswith("/" + end)


def _stem(path: str) -> str:
    """Return the last part of a path without its ending, in lower case; a folder's own name."""
    return posixpath.splitext(posixpath.basename(path.rstrip("/")))[0].lower()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or one with a NUL
        return False
