"""Turns files into documents: reads them, and puts outline, links and claims together."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from leasehold import AgentClientError
from pipelines.review.folder import Found
from pipelines.review.links import Library
from pipelines.review.markdown import Page, Sentence, read_page
from pipelines.review.models import Claim, Document, Finding
from pipelines.review.questions import Excerpt, Numbered, Pick
from pipelines.review.rules import finding

EXCERPT_CHARACTERS: Final = 24_000  # what an agent reads at once; a longer sentence is alone
CLAIMS_KEPT: Final = 40  # of each document, the weightiest


def read_files(found: Found) -> tuple[dict[str, Page], list[Finding]]:
    """Read the files into pages by their path; those that cannot be read become findings."""
    pages: dict[str, Page] = {}
    findings: list[Finding] = []
    for file in found.files:
        path = file.relative_to(found.root).as_posix()
        try:
            pages[path] = read_page(file.read_bytes().decode())
        except UnicodeDecodeError as error:
            findings.append(_not_utf8(path, error))
        except OSError as error:
            findings.append(
                finding("unreadable", f"The file cannot be read ({error.strerror}).", document=path)
            )
    return pages, findings


def library(root: Path, pages: Mapping[str, Page]) -> Library:
    """Return what links between the pages are resolved with."""
    return Library(root, {path: frozenset(page.anchors) for path, page in pages.items()})


def excerpts(path: str, page: Page) -> Iterator[Excerpt]:
    """Yield all sentences of a page in excerpts that an agent can read at once."""
    part: list[Numbered] = []
    size = 0
    for number, sentence in enumerate(page.sentences):
        if part and size + len(sentence.text) > EXCERPT_CHARACTERS:
            yield Excerpt(document=path, title=page.title or path, sentences=tuple(part))
            part, size = [], 0
        part.append(Numbered(number=number, section=_section(sentence), text=sentence.text))
        size += len(sentence.text)
    if part:
        yield Excerpt(document=path, title=page.title or path, sentences=tuple(part))


def document(path: str, page: Page, shelf: Library, picks: Sequence[Pick]) -> Document:
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
            shelf.resolve(path, line, target, image=image) for line, target, image in page.links
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


def _not_utf8(path: str, error: UnicodeDecodeError) -> Finding:
    found = error.object[error.start]
    return finding(
        "not_utf8",
        f"The file is not UTF-8 (byte 0x{found:02x} at offset {error.start}); it is not reviewed.",
        document=path,
    )
