"""The report that people read, as Markdown."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from leasehold.domain.printable import counted
from pipelines.review.markdown_escapes import code, label, prose, row
from pipelines.review.models import (
    Digest,
    Extraction,
    Finding,
    LinkState,
    Point,
    Review,
    Severity,
    Verdict,
)

ROWS: Final = 200  # findings of one severity that the report shows
NAMES: Final = 8  # folders that were not looked into
VERDICTS: Final[dict[Verdict, str]] = {
    "pass": "Pass",
    "pass_with_findings": "Pass with findings",
    "fail": "Fail",
}
SEVERITIES: Final[dict[Severity, str]] = {
    "high": "High: the digest cannot be trusted",
    "medium": "Medium: readers lose something",
    "low": "Low: worth a look",
}


def report(
    run_id: str,
    extraction: Extraction,
    digest: Digest,
    review: Review,
    *,
    folder: Path | None = None,
) -> str:
    """Return the whole report as Markdown.

    Its places are links to the documents, relative to the `folder` that the report is put into;
    without one, as in a bucket, they are plain.
    """
    return _Report(run_id, extraction, digest, review, folder).render()


class _Report:
    def __init__(
        self,
        run_id: str,
        extraction: Extraction,
        digest: Digest,
        review: Review,
        folder: Path | None,
    ) -> None:
        self._run_id = run_id
        self._extraction = extraction
        self._digest = digest
        self._review = review
        self._folder = folder
        self._places: dict[str, str] = {}  # label to address, of all references made

    def render(self) -> str:
        parts = [
            f"# Review of {prose(Path(self._extraction.folder).name or self._extraction.folder)}",
            self._headline(),
            *self._at_a_glance(),
            *self._key_points(),
            *self._findings(),
            *self._summaries(),
            *self._documents(),
        ]
        references = "\n".join(f"[{name}]: {address}" for name, address in self._places.items())
        return "\n\n".join([*parts, references]).rstrip() + "\n"

    def _headline(self) -> str:
        review, digest = self._review, self._digest
        sentence = {
            "pass": "The digest stands on its sources, and nothing was found to correct.",
            "pass_with_findings": "The digest stands on its sources; the findings below are about "
            "the documents.",
            "fail": "Do not rely on the digest before the findings of high severity are resolved.",
        }[review.verdict]
        if not digest.points and review.verdict != "fail":
            sentence = "The documents make no claims, so there is nothing to digest."
        return (
            f"**{VERDICTS[review.verdict]}.** {sentence} "
            f"{counted(len(self._extraction.documents), 'document')} read, "
            f"{counted(len(digest.points), 'key point')}, "
            f"{counted(len(review.findings), 'finding')}."
        )

    def _at_a_glance(self) -> Iterator[str]:
        documents, review = self._extraction.documents, self._review
        links = [link for document in documents for link in document.links]
        severities = Counter(finding.severity for finding in review.findings)
        total, kept = (
            sum(document.claims_found for document in documents),
            sum(len(document.claims) for document in documents),
        )
        facts = {
            "Verdict": f"**{VERDICTS[review.verdict]}**",
            "Findings": " · ".join(f"{severities[level]} {level}" for level in SEVERITIES),
            "Documents": f"{len(documents)}, with "
            f"{sum(document.words for document in documents):,} words in "
            f"{sum(len(document.sections) for document in documents):,} sections",
            "Claims": f"{total:,} found"
            + ("" if kept == total else f", the weightiest {kept:,} kept"),
            "Citations": f"{review.citations_checked} checked; {review.documents_cited} of "
            f"{counted(review.documents_citable, 'document')} with claims "
            f"{'is' if review.documents_citable == 1 else 'are'} cited",
            "Supervision": _supervision(review),
            "Links": _links(Counter(link.state for link in links)),
            "Not looked into": _some(self._extraction.skipped_folders),
            "Folder": code(self._extraction.folder),
            "Agent": prose(self._digest.agent),
            "Run": code(self._run_id),
        }
        yield "## At a glance"
        yield _table(["", ""], ([name, value] for name, value in facts.items() if value))

    def _key_points(self) -> Iterator[str]:
        yield "## Key points"
        if not self._digest.points:
            yield "The documents make no claims that could be cited."
        else:
            yield "\n".join(
                f"{number}. {self._point(point)}"
                for number, point in enumerate(self._digest.points, start=1)
            )
        if self._digest.terms:
            terms = ", ".join(f"{prose(term.term)} ({term.claims})" for term in self._digest.terms)
            yield f"Terms they turn on, with the number of claims that mention them: {terms}."

    def _summaries(self) -> Iterator[str]:
        titles = {document.path: document.title for document in self._extraction.documents}
        if self._digest.summaries:
            yield "## What each document says"
        for summary in self._digest.summaries:
            title = titles.get(summary.document)
            yield f"### {self._place(summary.document)}" + (f" {prose(title)}" if title else "")
            yield "\n".join(f"- {self._point(point)}" for point in summary.points)

    def _findings(self) -> Iterator[str]:
        yield "## Findings"
        if not self._review.findings:
            yield "None."
        for severity, heading in SEVERITIES.items():
            findings = [each for each in self._review.findings if each.severity == severity]
            if not findings:
                continue
            yield f"### {heading} ({len(findings)})"
            yield _table(
                ["Where", "What", "What to do"],
                (
                    [self._where(each), prose(each.message), prose(each.remediation)]
                    for each in islice(findings, ROWS)
                ),
            )
            if len(findings) > ROWS:
                yield f"And {len(findings) - ROWS} more, which are in `findings.json`."

    def _documents(self) -> Iterator[str]:
        findings = Counter(finding.document for finding in self._review.findings)
        yield "## Documents"
        yield _table(
            ["Document", "Title", "Words", "Sections", "Claims", "Links", "Findings"],
            (
                [
                    self._place(document.path),
                    prose(document.title or ""),
                    f"{document.words:,}",
                    str(len(document.sections)),
                    str(document.claims_found),
                    str(len(document.links)),
                    str(findings[document.path]),
                ]
                for document in self._extraction.documents
            ),
            right=range(2, 7),
        )

    def _point(self, point: Point) -> str:
        places = dict.fromkeys(self._place(each.document, each.line) for each in point.citations)
        return f"{prose(point.text)} {' '.join(places)}"

    def _where(self, finding: Finding) -> str:
        return self._place(finding.document, finding.line) if finding.document else "the digest"

    def _place(self, document: str, line: int | None = None) -> str:
        """Refer to a place; the address follows at the end, where it does not disturb reading."""
        place = f"{document}:{line}" if line else document
        if self._folder is None:
            return code(place)
        target = os.path.relpath(Path(self._extraction.folder, document), self._folder)
        name = label(place)
        self._places[name] = quote(Path(target).as_posix()) + (f"#L{line}" if line else "")
        return f"[{name}]"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return "\n".join([row(head), row(rule), *(row(cells) for cells in rows)])


def _supervision(review: Review) -> str:
    """Return what the supervision took, and what was spared where it was begun again."""
    done = review.supervision
    text = f"{counted(done.iterations, 'iteration')}, {counted(done.calls, 'call')} to the agent"
    if done.attempts > 1:
        text += (
            f" in {counted(done.attempts, 'attempt')}; {done.calls_before} of them made before the "
            "last attempt, and not again"
        )
    if done.trial > 1:
        text += f"; trial {done.trial} of the digest counts, with the score {review.score:g}"
    return text


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(code(name) for name in names[:NAMES])
    return listed + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


def _links(states: Counter[LinkState]) -> str:
    broken = states["broken_link"] + states["broken_anchor"]
    checked = states["ok"] + broken
    return (
        f"{checked:,} within the folder checked, {broken:,} of them broken; "
        f"{states['unchecked']:,} lead outside and were not followed"
    )
