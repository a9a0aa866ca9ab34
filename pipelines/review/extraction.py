"""Step extraction: what a folder of Markdown contains.

Given:   ReviewInput.
Gives:   Extraction: each document's sections, links and claims, and the files left out.
Fails:   PermanentError when there is no Markdown that can be read; AgentClientError from the agent.
"""

from leasehold import PermanentError, StepContext
from pipelines.review.agent import Agent, chosen_agent
from pipelines.review.documents import document, excerpts, library_of, read_files
from pipelines.review.markdown_files import find_markdown
from pipelines.review.models import Extraction, ReviewInput
from pipelines.review.page import Page
from pipelines.review.questions import Pick


def extract(ctx: StepContext, given: ReviewInput) -> Extraction:
    """Read the folder and let the agent pick the claims."""
    listing = find_markdown(given)
    ctx.progress(0.05, f"{len(listing.files)} Markdown files in {listing.root}")
    pages, unread = read_files(listing)
    left_out = (*listing.findings, *unread)
    if not pages:
        raise PermanentError(
            f"None of the Markdown files in {listing.root} can be read; the first problem: "
            f"{left_out[0].document}: {left_out[0].message} {left_out[0].remediation}",
            code="nothing_readable",
        )
    ctx.progress(0.4, f"{len(pages)} documents read")
    agent = chosen_agent(ctx)
    library = library_of(listing.root, pages)
    documents = []
    for count, (path, page) in enumerate(pages.items(), start=1):
        documents.append(document(path, page, library, _picks(agent, path, page)))
        if count % max(1, len(pages) // 10) == 0:
            ctx.progress(0.4 + 0.6 * count / len(pages), f"claims of {count} documents")
    return Extraction(
        folder=str(listing.root),
        agent=agent.name,
        points=given.points,
        documents=tuple(documents),
        skipped_folders=tuple(sorted(listing.skipped_folders)),
        findings=left_out,
    )


def _picks(agent: Agent, path: str, page: Page) -> list[Pick]:
    return [pick for excerpt in excerpts(path, page) for pick in agent.claims(excerpt)]
