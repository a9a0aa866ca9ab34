"""Step publish: the report for people, and the findings for machines.

Given:   Review, and the outputs of extraction and synthesis.
Gives:   Publication: addresses of both files, the verdict and the counts.
"""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from leasehold import StepContext
from pipelines.review.markdown_escapes import escape_controls
from pipelines.review.models import Digest, Extraction, FindingCounts, Publication, Review
from pipelines.review.report import report


def publish(ctx: StepContext, given: Review) -> Publication:
    """Store `report.md` and `findings.json` with the run; a second attempt replaces them."""
    extraction = Extraction.model_validate(ctx.output_of("extraction"))
    digest = Digest.model_validate(ctx.output_of("synthesis"))
    findings = [finding.model_dump(mode="json") for finding in given.findings]
    counts = Counter(finding.severity for finding in given.findings)
    as_json = escape_controls(json.dumps(findings, ensure_ascii=False, indent=2))
    findings_file = ctx.artifacts.put("findings.json", as_json.encode())
    text = report(ctx.run_id, extraction, digest, given, folder=folder_of(findings_file))
    return Publication(
        report=ctx.artifacts.put("report.md", text.encode()),
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
