from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pipelines.review.models import (
    Citation,
    Claim,
    Digest,
    Document,
    Extraction,
    Finding,
    Link,
    Point,
    Review,
    Summary,
    Supervision,
)
from pipelines.review.publish import Report, folder_of

CLAIM = Claim(
    id="docs/[a] b.md:3",
    document="docs/[a] b.md",
    section="A",
    line=3,
    kind="rule",
    weight=0.8,
    text="A `lease|hold` must end in *30* s.",
)
POINT = Point(
    text=CLAIM.text,
    citations=(
        Citation(claim=CLAIM.id, document=CLAIM.document, line=CLAIM.line, quote=CLAIM.text),
    ),
)
DOCUMENT = Document(
    path="docs/[a] b.md",
    title="All | about *a*",
    lines=9,
    words=1200,
    sections=(),
    links=(Link(line=4, target="x.md", state="broken_link"),),
    claims_found=2,
    claims=(CLAIM,),
)
EXTRACTION = Extraction(
    folder="/srv/my docs",
    agent="local",
    points=12,
    documents=(DOCUMENT,),
    skipped_folders=("node_modules/",),
    findings=(),
)
SUPERVISION = Supervision(trial=1, attempts=1, iterations=5, calls=5, calls_before=0)
DIGEST = Digest(
    agent="local",
    points=(POINT,),
    summaries=(Summary(document=DOCUMENT.path, points=(POINT,)),),
)

OUT = Path("/srv/my docs/out")

EXPECTED = """\
# Review of my docs

**Pass with findings.** The digest stands on its sources; \
the findings below are about the documents.

|  |  |
| --- | --- |
| Documents | 1, with 1,200 words |
| Claims | 2 found |
| Citations | 2 checked; 1 of 1 document with claims cited |
| Supervision | 5 iterations, 5 calls to the agent |
| Links | 1 checked, 1 of them broken |
| Not looked into | node_modules/ |
| Folder | /srv/my docs |
| Agent | local |
| Run | run-7 |

## Key points

1. A \\`lease\\|hold\\` must end in \\*30\\* s. [docs/\\[a\\] b.md:3](../docs/%5Ba%5D%20b.md#L3)

## Findings

### Medium: readers lose something (1)

| Where | What | What to do |
| --- | --- | --- |
| [docs/\\[a\\] b.md:4](../docs/%5Ba%5D%20b.md#L4) | The link \\`x\\|y.md\\` leads to no file. | \
Correct it \\| remove it. |

## What each document says

### [docs/\\[a\\] b.md](../docs/%5Ba%5D%20b.md)

1. A \\`lease\\|hold\\` must end in \\*30\\* s. [docs/\\[a\\] b.md:3](../docs/%5Ba%5D%20b.md#L3)
"""


def report(
    run_id: str,
    extraction: Extraction,
    digest: Digest,
    review: Review,
    *,
    folder: Path | None = None,
) -> str:
    return Report(extraction, digest, review, folder).text(run_id)


def reviewed(*findings: Finding, supervision: Supervision | None = None) -> Review:
    return Review(
        verdict="pass_with_findings" if findings else "pass",
        settled=True,
        score=1.0,
        supervision=supervision or SUPERVISION,
        citations_checked=2,
        documents_citable=1,
        documents_cited=1,
        findings=findings,
    )


def test_the_report_says_verdict_digest_findings_and_documents() -> None:
    broken = Finding(
        severity="medium",
        code="broken_link",
        document="docs/[a] b.md",
        line=4,
        message="The link `x|y.md` leads to no file.",
        remediation="Correct it | remove it.",
    )

    text = report("run-7", EXTRACTION, DIGEST, reviewed(broken), folder=OUT)

    assert text == EXPECTED


def test_each_place_in_the_report_is_a_link_to_the_line() -> None:
    html = (
        MarkdownIt("commonmark")
        .enable("table")
        .render(report("run-7", EXTRACTION, DIGEST, reviewed(), folder=OUT))
    )

    assert html.count('href="../docs/%5Ba%5D%20b.md#L3"') == 2
    assert html.count("<td") == 18
    assert "[docs/" not in html


def test_a_report_without_findings_or_claims_says_so() -> None:
    nothing = Digest(agent="local", points=(), summaries=())

    text = report("run-7", EXTRACTION, nothing, reviewed())

    assert "## Key points\n\nThe documents make no claims that could be cited.\n" in text
    assert "## Findings\n\nNone.\n" in text


def test_more_findings_than_a_person_reads_are_counted() -> None:
    untitled = Finding(severity="low", code="no_title", message="No.", remediation="Do.")

    text = report("run-7", EXTRACTION, DIGEST, reviewed(*[untitled] * 203))

    assert text.count("| the digest | No. | Do. |") == 200
    assert "And 3 more, which are in `findings.json`." in text


def test_places_are_plain_where_the_report_does_not_lie_in_a_folder() -> None:
    text = report("run-7", EXTRACTION, DIGEST, reviewed())

    assert "1. A \\`lease\\|hold\\` must end in \\*30\\* s. docs/\\[a\\] b.md:3\n" in text


HOSTILE = "a<script>`</script>\x1b[2J\x9b\u202e`<img src=x onerror=y>\n\n<div>"


@pytest.mark.parametrize("folder", [None, OUT])
def test_no_text_of_the_documents_is_html_or_obeyed_by_a_terminal(folder: Path | None) -> None:
    claim = CLAIM.model_copy(update={"document": HOSTILE, "text": HOSTILE, "id": HOSTILE})
    citation = Citation(claim=HOSTILE, document=HOSTILE, line=3, quote=HOSTILE)
    point = Point(text=HOSTILE, citations=(citation,))
    document = DOCUMENT.model_copy(update={"path": HOSTILE, "title": HOSTILE, "claims": (claim,)})
    extraction = EXTRACTION.model_copy(
        update={"folder": HOSTILE, "documents": (document,), "skipped_folders": (HOSTILE,)}
    )
    digest = Digest(
        agent=HOSTILE,
        points=(point,),
        summaries=(Summary(document=HOSTILE, points=(point,)),),
    )
    finding = Finding(
        severity="low", code="x", document=HOSTILE, line=1, message=HOSTILE, remediation=HOSTILE
    )

    text = report(HOSTILE, extraction, digest, reviewed(finding), folder=folder)

    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inner = [child for token in tokens for child in token.children or ()]
    assert not [token for token in [*tokens, *inner] if token.type.startswith("html")]
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("address", "folder"),
    [
        ("/srv/runs/1/findings.json", Path("/srv/runs/1")),
        ("file:///srv/my%20runs/1/findings.json", Path("/srv/my runs/1")),
        ("gs://bucket/runs/1/findings.json", None),
    ],
)
def test_the_folder_of_an_address_is_known_on_this_machine(
    address: str, folder: Path | None
) -> None:
    assert folder_of(address) == folder


def test_the_report_says_what_a_supervision_took_that_was_begun_again() -> None:
    again = Supervision(trial=2, attempts=3, iterations=5, calls=5, calls_before=4)

    text = report("run-7", EXTRACTION, DIGEST, reviewed(supervision=again))

    assert (
        "| Supervision | 5 iterations, 5 calls to the agent in 3 attempts; 4 of them made before "
        "the last attempt, and not again; trial 2 of the digest counts, with the score 1 |"
    ) in text
