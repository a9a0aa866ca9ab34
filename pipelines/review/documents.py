"""Documents made of files: read, with outline, links and claims put together."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from leasehold import AgentClientError
from pipelines.review.findings import finding
from pipelines.review.inline import LONGEST_BLOCK
from pipelines.review.links import Library
from pipelines.review.markdown_files import MarkdownFiles
from pipelines.review.models import Claim, Document, Finding
from pipelines.review.page import Page, Sentence, read_page
from pipelines.review.questions import Excerpt, Numbered, Pick
from pipelines.review.regular_files import TooLargeError, read_below
from pipelines.review.size_budget import MAX_PARTS, SizeBudget

EXCERPT_CHARACTERS: Final = 24_000  # what an agent reads at once, headings included
CLAIMS_KEPT: Final = 40  # of each document, the weightiest


def read_files(listing: MarkdownFiles) -> tuple[dict[str, Page], list[Finding]]:
    """Read the files into pages by their path; what cannot be read becomes findings."""
    pages: dict[str, Page] = {}
    findings: list[Finding] = []
    left = listing.bounds.max_total_bytes  # files may have grown since they were listed
    budget = SizeBudget()
    for file in listing.files:
        relative = file.relative_to(listing.root)
        path = relative.as_posix()
        try:
            raw = read_below(listing.root, relative.parts, min(left, listing.bounds.max_file_bytes))
            left -= len(raw)
            pages[path] = read_page(raw.decode(), budget)
            findings += _unread_parts(path, pages[path])
        except UnicodeDecodeError as error:
            findings.append(_not_utf8(path, error))
        except TooLargeError:
            message = "It is not read: it grew beyond the bounds meanwhile."
            findings.append(finding("too_large", message, document=path))
        except OSError as error:
            message = f"The file cannot be read ({error.strerror})."
            findings.append(finding("unreadable", message, document=path))
    return pages, findings


def library_of(root: Path, pages: Mapping[str, Page]) -> Library:
    """Return what links between the pages are resolved with."""
    return Library(root, {path: frozenset(page.anchors) for path, page in pages.items()})


def excerpts(path: str, page: Page) -> Iterator[Excerpt]:
    """Yield all sentences of a page in excerpts that an agent can read at once."""
    part: list[Numbered] = []
    size = 0
    for number, sentence in enumerate(page.sentences):
        numbered = Numbered(number=number, section=_section(sentence), text=sentence.text)
        length = len(numbered.section) + len(numbered.text)
        if part and size + length > EXCERPT_CHARACTERS:
            yield Excerpt(document=path, title=page.title or path, sentences=tuple(part))
            part, size = [], 0
        part.append(numbered)
        size += length
    if part:
        yield Excerpt(document=path, title=page.title or path, sentences=tuple(part))


def document(path: str, page: Page, library: Library, picks: Sequence[Pick]) -> Document:
    """Put together what is known of one page.

    Raises:
        AgentClientError: the picks name a sentence that is not there, or one twice. Retryable.
    """
    _check(path, page, picks)
    kept = sorted(picks, key=lambda pick: -pick.weight)[:CLAIMS_KEPT]
    return Document(
        path=path,
        title=page.title,
        lines=page.lines,
        words=page.words,
        sections=page.sections,
        links=tuple(
            library.resolve(path, line, target, image=image) for line, target, image in page.links
        ),
        claims_found=len(picks),
        claims=tuple(_claims(path, page, sorted(kept, key=lambda pick: pick.number))),
    )


def _check(path: str, page: Page, picks: Sequence[Pick]) -> None:
    times = Counter(pick.number for pick in picks)
    unknown = sorted(number for number in times if not 0 <= number < len(page.sentences))
    twice = sorted(number for number in times if times[number] > 1)
    if unknown or twice:
        raise AgentClientError(
            f"The agent picked sentences of {path} that are not there, or picked them twice.",
            code="bad_picks",
            details={"document": path, "unknown": unknown, "twice": twice},
        )


def _claims(path: str, page: Page, picks: Sequence[Pick]) -> Iterator[Claim]:
    taken: dict[int, int] = {}  # how many claims begin on a line
    for pick in picks:
        sentence = page.sentences[pick.number]
        earlier = taken.get(sentence.line, 0)
        taken[sentence.line] = earlier + 1
        yield Claim(
            id=f"{path}:{sentence.line}" + (f"+{earlier}" if earlier else ""),
            document=path,
            section=_section(sentence),
            line=sentence.line,
            kind=pick.kind,
            weight=pick.weight,
            text=sentence.text,
        )


def _section(sentence: Sentence) -> str:
    return " > ".join(sentence.section)


def _unread_parts(path: str, page: Page) -> Iterator[Finding]:
    if page.too_long:
        more = len(page.too_long) - 1
        yield finding(
            "too_long",
            f"Only the words are counted of a block of more than {LONGEST_BLOCK:,} characters"
            + (f" (and of {more} more)." if more else "."),
            document=path,
            line=page.too_long[0],
        )
    if page.left_out:
        parts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(page.left_out.items()))
        most = ", ".join(f"{count:,} {kind}" for kind, count in sorted(MAX_PARTS.items()))
        message = f"{parts} are left out: a review has room for {most}."
        yield finding("too_much", message, document=path)


def _not_utf8(path: str, error: UnicodeDecodeError) -> Finding:
    byte = error.object[error.start]
    return finding(
        "not_utf8",
        f"The file is not UTF-8 (byte 0x{byte:02x} at offset {error.start}); it is not reviewed.",
        document=path,
    )
