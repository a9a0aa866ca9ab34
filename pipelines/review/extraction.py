"""Step extraction: what a folder of Markdown contains.

Given:   ReviewInput.
Gives:   Extraction: each document's sections, links and claims, and the files left out.
Fails:   PermanentError when there is no Markdown that can be read; AgentClientError from the agent.
"""

import errno
import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pydantic import TypeAdapter

from leasehold import AgentClientError, PermanentError, StepContext
from pipelines.review.agent import chosen_agent
from pipelines.review.files import MarkdownFiles, find_markdown, read_file
from pipelines.review.findings import finding
from pipelines.review.markdown import LONGEST_BLOCK, Page, read_page
from pipelines.review.models import Claim, Document, Extraction, Link, ReviewInput
from pipelines.review.questions import Excerpt, Numbered, Pick

EXCERPT_CHARACTERS: Final = 24_000  # what an agent reads at once, headings included
CLAIMS_KEPT: Final = 40  # of each document, the weightiest
#: What is kept at most of all documents together: enough for 20 MB of prose.
MAX_PARTS: Final[Mapping[str, int]] = {"sections": 50_000, "links": 50_000, "sentences": 500_000}

EXTERNAL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]++:|/")  # at the beginning of a target
_PICKS: Final = TypeAdapter(list[tuple[Pick, ...]])


def extract(ctx: StepContext, given: ReviewInput) -> Extraction:
    """Read the folder and let the agent pick the claims.

    Its picks are kept as checkpoints: an attempt that fails is followed by one that goes on with
    the next excerpt. They are of these texts alone, so the checkpoint bears their hash.
    """
    found = find_markdown(given)
    pages = read_pages(found, given)
    if not pages:
        first = found.findings[0]
        raise PermanentError(
            f"None of the Markdown files in {found.root} can be read; the first problem: "
            f"{first.document}: {first.message} {first.remediation}",
            code="nothing_readable",
        )
    agent = chosen_agent(ctx)
    asked = [excerpt for path, page in pages.items() for excerpt in excerpts(path, page)]
    loop = ctx.checkpointed(asked, phase=f"claims of {_hash(asked)}")
    for excerpt in loop:
        loop.results.append(checked(excerpt, agent.claims(excerpt)))
        ctx.progress(len(loop.results) / len(asked), f"claims of {excerpt.document}")
    picks: dict[str, list[Pick]] = {path: [] for path in pages}
    for excerpt, picked in zip(asked, _PICKS.validate_python(loop.results), strict=True):
        picks[excerpt.document] += picked
    return Extraction(
        folder=str(found.root),
        agent=agent.name,
        points=given.points,
        documents=tuple(
            document(found.root, path, pages, sorted(picks[path], key=lambda pick: -pick.weight))
            for path in pages
        ),
        skipped_folders=tuple(sorted(found.skipped_folders)),
        findings=tuple(found.findings),
    )


def read_pages(found: MarkdownFiles, bounds: ReviewInput) -> dict[str, Page]:
    """Read the files into pages by their path; what cannot be read becomes findings."""
    pages: dict[str, Page] = {}
    room = dict(MAX_PARTS)
    left = bounds.max_total_bytes  # files may have grown since they were listed
    for path in found.files:
        try:
            raw = read_file(found.root, path, min(left, bounds.max_file_bytes))
            left -= len(raw)
            pages[path] = read_page(raw.decode())
        except UnicodeDecodeError as error:
            place = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
            found.note("not_utf8", path, f"The file is not UTF-8 ({place}); it is not reviewed.")
            continue
        except OSError as error:
            code = "too_large" if error.errno == errno.EFBIG else "unreadable"
            found.note(code, path, f"The file cannot be read ({error.strerror}).")
            continue
        if lines := pages[path].too_long:
            message = f"Only the words are counted of blocks over {LONGEST_BLOCK:,} characters."
            found.findings.append(finding("too_long", message, document=path, line=lines[0]))
        for kind, parts in (
            ("sections", pages[path].sections),
            ("links", pages[path].links),
            ("sentences", pages[path].sentences),
        ):
            if len(parts) > room[kind]:
                kept = f"a review has room for {MAX_PARTS[kind]:,}"
                found.note("too_much", path, f"Some of its {kind} are left out: {kept}.")
            del parts[room[kind] :]
            room[kind] -= len(parts)
    return pages


def excerpts(path: str, page: Page) -> Iterator[Excerpt]:
    """Yield all sentences of a page in excerpts that an agent can read at once."""
    part: list[Numbered] = []
    size = 0
    for number, sentence in enumerate(page.sentences):
        section = " > ".join(sentence.section)
        length = len(section) + len(sentence.text)
        if part and size + length > EXCERPT_CHARACTERS:
            yield Excerpt(document=path, title=page.title or path, sentences=tuple(part))
            part, size = [], 0
        part.append(Numbered(number=number, section=section, text=sentence.text))
        size += length
    if part:
        yield Excerpt(document=path, title=page.title or path, sentences=tuple(part))


def checked(excerpt: Excerpt, picks: Sequence[Pick]) -> tuple[Pick, ...]:
    """Return the picks.

    Raises:
        AgentClientError: they name a sentence that is not there, or one twice. Retryable.
    """
    times = Counter(pick.number for pick in picks)
    unknown = sorted(times.keys() - {sentence.number for sentence in excerpt.sentences})
    twice = sorted(number for number in times if times[number] > 1)
    if unknown or twice:
        raise AgentClientError(
            f"The agent picked sentences of {excerpt.document} that are not there, or twice.",
            code="bad_picks",
            details={"document": excerpt.document, "unknown": unknown, "twice": twice},
        )
    return tuple(picks)


def document(root: Path, path: str, pages: Mapping[str, Page], picks: Sequence[Pick]) -> Document:
    """Put together what is known of one page; the picks come weightiest first."""
    page = pages[path]
    claims: list[Claim] = []
    earlier: Counter[int] = Counter()  # claims that begin on a line
    for pick in sorted(picks[:CLAIMS_KEPT], key=lambda pick: pick.number):
        sentence = page.sentences[pick.number]
        times = earlier[sentence.line]
        earlier[sentence.line] += 1
        claims.append(
            Claim(
                id=f"{path}:{sentence.line}" + (f"+{times}" if times else ""),
                document=path,
                section=" > ".join(sentence.section),
                line=sentence.line,
                kind=pick.kind,
                weight=pick.weight,
                text=sentence.text,
            )
        )
    return Document(
        path=path,
        title=page.title,
        lines=page.lines,
        words=page.words,
        sections=tuple(page.sections),
        links=tuple(resolved(root, path, pages, line, target) for line, target in page.links),
        claims_found=len(picks),
        claims=tuple(claims),
    )


def resolved(root: Path, path: str, pages: Mapping[str, Page], line: int, target: str) -> Link:
    """Say whether something is where a link of the page leads; only the folder is checked.

    A target that begins with `/` depends on the site that the page is shown by.
    """
    if EXTERNAL.match(target):
        return Link(line=line, target=target, state="unchecked")
    place, _, fragment = target.partition("#")
    name, anchor = unquote(place.partition("?")[0]), unquote(fragment)
    if not name and "#" not in target:
        return Link(line=line, target=target, state="broken_link")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
    if wanted not in pages and not _exists(root / wanted):
        return Link(line=line, target=target, state="broken_link")
    if anchor in {"", "top"} or anchor.startswith(":~:"):
        return Link(line=line, target=target, state="ok")
    if wanted not in pages:  # not Markdown, or not read
        return Link(line=line, target=target, state="unchecked")
    is_there = anchor in pages[wanted].anchors
    return Link(line=line, target=target, state="ok" if is_there else "broken_anchor")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or one with a NUL
        return False


def _hash(asked: Sequence[Excerpt]) -> str:
    texts: Any = hashlib.sha256()
    for excerpt in asked:
        texts.update(excerpt.model_dump_json().encode())
    return str(texts.hexdigest()[:16])
