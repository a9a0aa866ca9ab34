"""Step publish: the report for people, and the findings for machines.

Given:   Review, and the outputs of extraction and synthesis.
Gives:   Publication: addresses of both files, the verdict and the counts.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from leasehold import StepContext
from leasehold.domain.printable import counted
from pipelines.review.markdown_escapes import escape_controls, prose
from pipelines.review.models import (
    Digest,
    Extraction,
    FindingCounts,
    Point,
    Publication,
    Review,
    Severity,
    Verdict,
)

ROWS: Final = 200  # findings of one severity that the report shows
VERDICTS: Final[dict[Verdict, str]] = {
    "pass": "**Pass.** The digest stands on its sources, and nothing was found to correct.",
    "pass_with_findings": "**Pass with findings.** The digest stands on its sources; the findings "
    "below are about the documents.",
    "fail": "**Fail.** Do not rely on the digest before the findings of high severity are "
    "resolved.",
}
SEVERITIES: Final[dict[Severity, str]] = {
    "high": "High: the digest cannot be trusted",
    "medium": "Medium: readers lose something",
    "low": "Low: worth a look",
}


def publish(ctx: StepContext, given: Review) -> Publication:
    """Store `report.md` and `findings.json` with the run; a second attempt replaces them."""
    extraction = Extraction.model_validate(ctx.output_of("extraction"))
    digest = Digest.model_validate(ctx.output_of("synthesis"))
    findings = [finding.model_dump(mode="json") for finding in given.findings]
    counts = Counter(finding.severity for finding in given.findings)
    as_json = escape_controls(json.dumps(findings, ensure_ascii=False, indent=2))
    findings_file = ctx.artifacts.put("findings.json", as_json.encode())
    report = Report(extraction, digest, given, folder_of(findings_file))
    return Publication(
        report=ctx.artifacts.put("report.md", report.text(ctx.run_id).encode()),
        findings_file=findings_file,
        verdict=given.verdict,
        documents=len(extraction.documents),
        claims=sum(len(document.claims) for document in extraction.documents),
        points=len(digest.points),
        findings=FindingCounts(high=counts["high"], medium=counts["medium"], low=counts["low"]),
    )


def folder_of(address: str) -> Path | None:
    """Return the folder of a file on this machine, or None for any other address."""
    if address.startswith("file://"):
        address = url2pathname(urlsplit(address).path)
    return None if "://" in address else Path(address).resolve().parent


class Report:
    """The report for people, as Markdown.

    Its places are links to the documents, relative to the `folder` that the report is put into;
    without one, as in a bucket, they are plain.
    """

    def __init__(
        self, extraction: Extraction, digest: Digest, review: Review, folder: Path | None
    ) -> None:
        self._extraction = extraction
        self._digest = digest
        self._review = review
        self._folder = folder

    def text(self, run_id: str) -> str:
        """Return the whole report."""
        digest, folder = self._digest, Path(self._extraction.folder)
        parts = [
            f"# Review of {prose(folder.name or str(folder))}",
            VERDICTS[self._review.verdict],
            _table(["", ""], (self._facts() | {"Run": prose(run_id)}).items()),
            "## Key points",
            self._points(digest.points) or "The documents make no claims that could be cited.",
            *self._findings(),
            "## What each document says",
        ]
        for summary in digest.summaries:
            parts += [f"### {self._place(summary.document)}", self._points(summary.points)]
        return "\n\n".join(parts) + "\n"

    def _facts(self) -> dict[str, str]:
        documents, review = self._extraction.documents, self._review
        links = Counter(link.state for document in documents for link in document.links)
        broken = links["broken_link"] + links["broken_anchor"]
        words = sum(document.words for document in documents)
        return {
            "Documents": f"{len(documents)}, with {words:,} words",
            "Claims": f"{sum(document.claims_found for document in documents):,} found",
            "Citations": f"{review.citations_checked} checked; {review.documents_cited} of "
            f"{counted(review.documents_citable, 'document')} with claims cited",
            "Supervision": _supervision(review),
            "Links": f"{links['ok'] + broken:,} checked, {broken:,} of them broken",
            "Not looked into": prose(", ".join(self._extraction.skipped_folders[:8])) or "-",
            "Folder": prose(self._extraction.folder),
            "Agent": prose(self._digest.agent),
        }

    def _points(self, points: Sequence[Point]) -> str:
        lines = []
        for number, point in enumerate(points, start=1):
            places = dict.fromkeys(
                self._place(each.document, each.line) for each in point.citations
            )
            lines.append(f"{number}. {prose(point.text)} {' '.join(places)}")
        return "\n".join(lines)

    def _findings(self) -> Iterator[str]:
        yield "## Findings"
        if not self._review.findings:
            yield "None."
        for severity, heading in SEVERITIES.items():
            rows = [
                (
                    self._place(each.document, each.line) if each.document else "the digest",
                    prose(each.message),
                    prose(each.remediation),
                )
                for each in self._review.findings
                if each.severity == severity
            ]
            if rows:
                yield f"### {heading} ({len(rows)})"
                yield _table(["Where", "What", "What to do"], rows[:ROWS])
            if len(rows) > ROWS:
                yield f"And {len(rows) - ROWS} more, which are in `findings.json`."

    def _place(self, document: str, line: int | None = None) -> str:
        place = prose(f"{document}:{line}" if line else document)
        if self._folder is None:
            return place
        target = os.path.relpath(Path(self._extraction.folder, document), self._folder)
        return f"[{place}]({quote(Path(target).as_posix())}{f'#L{line}' if line else ''})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


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
