"""The values that pass between the steps of the review, as JSON with camelCase names.

`ReviewInput` → extraction → `Extraction` → synthesis → `Digest` → review → `Review`
→ publish → `Publication`. Lines count from 1; paths are relative to the folder, with `/`.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

ClaimKind = Literal["number", "rule", "comparison", "definition", "lead"]
LinkState = Literal["ok", "broken_link", "broken_anchor", "unchecked"]
Severity = Literal["high", "medium", "low"]
Verdict = Literal["pass", "pass_with_findings", "fail"]


class Record(BaseModel):
    """A value that does not change once it is made."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class ReviewInput(Record):
    """The Markdown to review, and how much of it at most. Omitted documents are reported."""

    folder: str = Field(default=".", min_length=1, description="a folder, or one Markdown file")
    max_files: int = Field(default=500, ge=1, le=5000)
    max_file_bytes: int = Field(default=1_000_000, ge=1, le=10_000_000)
    max_total_bytes: int = Field(default=20_000_000, ge=1, le=200_000_000)
    points: int = Field(default=12, ge=1, le=50, description="key points of the digest at most")


class Finding(Record):
    """One thing that a person should look at, where it is, and what to do about it.

    `point` is the text of the digest's point that it is about.
    """

    severity: Severity
    code: str
    document: str | None = None
    line: int | None = None
    point: str | None = None
    message: str
    remediation: str


class Section(Record):
    """A heading and what is below it. `path` is its heading path, itself included."""

    path: tuple[str, ...]
    level: int
    line: int


class Link(Record):
    """A link or an image; what leads out of the folder is `unchecked`."""

    line: int
    target: str
    state: LinkState


class Claim(Record):
    """A sentence that states something checkable, word for word.

    `id` is the place (`docs/a.md:12`, the next on that line `docs/a.md:12+1`). `weight`, 0 to 1,
    is how much the agent thinks it states.
    """

    id: str
    document: str
    section: str
    line: int
    kind: ClaimKind
    weight: float = Field(ge=0, le=1)
    text: str


class Document(Record):
    """One Markdown file: its outline, its links, and the best of its claims in reading order."""

    path: str
    title: str | None
    lines: int
    words: int
    sections: tuple[Section, ...]
    links: tuple[Link, ...]
    claims_found: int
    claims: tuple[Claim, ...]


class Extraction(Record):
    """The content of the folder. `findings` are the files that could not be read, or were not."""

    folder: str
    agent: str
    points: int
    documents: tuple[Document, ...]
    skipped_folders: tuple[str, ...]
    findings: tuple[Finding, ...]


class Citation(Record):
    """The claim that a point rests on, quoted."""

    claim: str
    document: str
    line: int
    quote: str


class Point(Record):
    """One statement of the digest and what it rests on."""

    text: str
    citations: tuple[Citation, ...]


class Summary(Record):
    """The content of one document, in a few points."""

    document: str
    points: tuple[Point, ...]


class Digest(Record):
    """The key points of all documents, and a summary of each."""

    agent: str
    points: tuple[Point, ...]
    summaries: tuple[Summary, ...]


class Supervision(Record):
    """How the digest was supervised: in which trial, and what that took over all attempts.

    Each iteration is one call to the agent; `calls_before` of them were made by an attempt before
    the last one, and not made again.
    """

    trial: int = 1
    attempts: int = 1
    iterations: int = 0
    calls: int = 0
    calls_before: int = 0


class Review(Record):
    """What supervision found: `fail` when the digest cannot be trusted.

    `settled`: another digest would repair no grave finding. `score`, 0 to 1, is the share of the
    points without a grave finding. `documents_citable` have claims to cite; `documents_cited` are
    cited by the digest. Fields with a default are missing in reviews of earlier versions.
    """

    verdict: Verdict
    settled: bool = True
    score: float = 1.0
    supervision: Supervision = Supervision()
    citations_checked: int
    documents_citable: int
    documents_cited: int
    findings: tuple[Finding, ...]


class FindingCounts(Record):
    """How many findings there are of each severity."""

    high: int
    medium: int
    low: int


class Publication(Record):
    """Where the report is, and what a caller needs to decide without opening it.

    `report` and `findings_file` are addresses that a person can open.
    """

    report: str
    findings_file: str
    verdict: Verdict
    documents: int
    claims: int
    points: int
    findings: FindingCounts
