"""The citations behind what an agent drafted, and the claims that its terms stand in."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from leasehold import AgentClientError
from pipelines.review.models import Citation, Claim, Document, Point, Term
from pipelines.review.questions import DraftPoint

SHORTLIST: Final = 300  # claims that an agent weighs at once, of all documents together…
SHORTLIST_EACH: Final = 6  # …but this many of each document at least
LONGEST_TERM: Final = 80  # characters
TERMS: Final = 50  # that are counted, however many an agent names


def shortlist(documents: Sequence[Document]) -> tuple[Claim, ...]:
    """Return the weightiest claims of each document, in the order of documents and lines."""
    each = max(SHORTLIST_EACH, SHORTLIST // max(1, len(documents)))
    return tuple(claim for document in documents for claim in _weightiest(document.claims, each))


def with_citations(drafts: Sequence[DraftPoint], known: Mapping[str, Claim]) -> tuple[Point, ...]:
    """Give each draft the citations of its claims.

    Raises:
        AgentClientError: a draft names a claim that is not known, or none at all. Retryable.
    """
    wrong = [
        {"point": draft.text, "claims": list(draft.claims)}
        for draft in drafts
        if not draft.claims or any(claim not in known for claim in draft.claims)
    ]
    if wrong:
        raise AgentClientError(
            f"The agent gave {len(wrong)} of {len(drafts)} points without a claim that exists.",
            code="bad_citations",
            details=wrong,
        )
    return tuple(
        Point(text=draft.text, citations=tuple(_citation(known[claim]) for claim in draft.claims))
        for draft in drafts
    )


def count_terms(terms: Sequence[str], claims: Sequence[Claim]) -> tuple[Term, ...]:
    """Count in how many claims and documents each term stands; drop those that no one mentions.

    Those that are repeated, or too long for a term, are dropped as well.
    """
    counts = []
    distinct: dict[str, str] = {}
    for term in terms:
        if term.strip() and len(term) <= LONGEST_TERM:
            distinct.setdefault(term.casefold(), term)
    for term in islice(distinct.values(), TERMS):
        pattern = re.compile(rf"(?<!\w){re.escape(term)}(?:s|es)?(?!\w)", re.IGNORECASE)
        documents = [claim.document for claim in claims if pattern.search(claim.text)]
        if documents:
            counts.append(Term(term=term, claims=len(documents), documents=len(set(documents))))
    return tuple(counts)


def _weightiest(claims: Sequence[Claim], count: int) -> list[Claim]:
    """Return the weightiest claims, in the order in which they stand."""
    numbered = sorted(enumerate(claims), key=lambda each: -each[1].weight)[:count]
    return [claim for _, claim in sorted(numbered, key=lambda each: each[0])]


def _citation(claim: Claim) -> Citation:
    return Citation(claim=claim.id, document=claim.document, line=claim.line, quote=claim.text)
