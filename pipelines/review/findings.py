"""Every finding there can be: its severity, and what to do about it."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pipelines.review.models import Finding, Severity


class Rule(NamedTuple):
    """The severity of a finding, and what helps."""

    severity: Severity
    remediation: str


#: High: the digest cannot be trusted. Medium: readers lose something. Low: worth a look.
RULES: Final[Mapping[str, Rule]] = {
    "point_uncited": Rule("high", "Run synthesis again; if it stays, look at the agent."),
    "citation_unknown": Rule("high", "Run synthesis again; if it stays, look at the agent."),
    "citation_altered": Rule("high", "Run synthesis again; if it stays, look at the agent."),
    "summary_elsewhere": Rule("high", "Run synthesis again; if it stays, look at the agent."),
    "number_unfounded": Rule("high", "Check the number at the places cited; do not pass it on."),
    "coverage_low": Rule("high", "Run synthesis again, or review fewer documents at a time."),
    "point_unsupported": Rule("high", "Read it beside what it quotes; do not pass it on."),
    "point_overstated": Rule("high", "Read it beside what it quotes; do not pass it on."),
    "point_reversed": Rule("high", "Read it beside what it quotes; do not pass it on."),
    "point_repeated": Rule("medium", "Read one of the two."),
    "points_contradict": Rule("medium", "Look up which of the two holds."),
    "not_utf8": Rule("medium", "Save the file as UTF-8."),
    "unreadable": Rule("medium", "Check that the file exists and may be read."),
    "linked": Rule("medium", "Put the file itself there, or review the folder that it lies in."),
    "too_large": Rule("medium", "Raise maxFileBytes, or split the file."),
    "too_many": Rule("medium", "Raise maxFiles or maxTotalBytes, or review a smaller folder."),
    "too_long": Rule("medium", "Divide it by blank lines; data belongs into its own file."),
    "too_much": Rule("medium", "Review a smaller folder, or split the document."),
    "broken_link": Rule("medium", "Correct the target, or remove the link."),
    "broken_anchor": Rule("medium", "Correct the anchor, or remove it."),
    "document_uncited": Rule("low", "Nothing to do if the document matters little."),
    "document_empty": Rule("low", "Write it, or remove the file."),
    "no_title": Rule("low", "Begin the document with a level 1 heading."),
    "level_skipped": Rule("low", "Use the next level, so that outlines and screen readers follow."),
}


def finding(
    code: str,
    message: str,
    *,
    document: str | None = None,
    line: int | None = None,
    point: str | None = None,
) -> Finding:
    """Make a finding of a known code."""
    rule = RULES[code]
    return Finding(
        severity=rule.severity,
        code=code,
        document=document,
        line=line,
        point=point,
        message=message,
        remediation=rule.remediation,
    )
