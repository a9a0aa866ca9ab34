"""Where the links of a document lead, and whether something is there."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pipelines.review.link_hints import LinkHints
from pipelines.review.models import Link

EXTERNAL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]++:|//")  # at the beginning of a target
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
        destination = self._find(document, path)
        if destination is None:
            hint = self._hints.path(document, path, anchor)
            return link.model_copy(update={"state": "broken_link", "hint": hint})
        return self._anchor(link, document, destination, anchor)

    def _anchor(self, link: Link, document: str, target: str, anchor: str) -> Link:
        if anchor in TOP or anchor.startswith(":~:"):
            return link
        known = self.anchors.get(target)
        if known is None:  # not Markdown, or not read
            return link.model_copy(update={"state": "unchecked"})
        if anchor in known:
            return link
        hint = self._hints.anchor(document, target, anchor)
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
            if page in self._by_ending:
                yield self._by_ending[page]

    @cached_property
    def _repository(self) -> Path:
        """The folder that `/` means in a link: the nearest one with a `.git`, or the root."""
        for folder in (self.root, *self.root.parents):
            if _exists(folder / ".git"):
                return folder
        return self.root

    @cached_property
    def _by_ending(self) -> Mapping[str, str]:
        """The first document for each of the endings that paths have, from a `/` on."""
        by_ending: dict[str, str] = {}
        for path in self.anchors:
            parts = path.split("/")
            for first in range(1, len(parts)):
                by_ending.setdefault("/".join(parts[first:]), path)
        return by_ending

    @cached_property
    def _hints(self) -> LinkHints:
        return LinkHints(self.anchors)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or one with a NUL
        return False
