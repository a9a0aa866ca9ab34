"""The steps of the pipeline `summary`, their models, and their gate: replace them with your own."""

from pydantic import BaseModel

from leasehold import GateContext, GatePolicyFailure, StepContext


class Document(BaseModel):
    """The input of a run."""

    text: str


class Outline(BaseModel):
    """The output of `outline`, and the input of `summarize`."""

    points: list[str]


class Summary(BaseModel):
    """The output of a run."""

    text: str


def outline(ctx: StepContext, given: Document) -> Outline:
    """Return the sentences of the document; a killed attempt goes on where it was."""
    sentences = [sentence.strip() for sentence in given.text.split(".") if sentence.strip()]
    points: list[str] = [] if ctx.resume is None else list(ctx.resume.partial_results)
    for sentence in sentences[len(points) :]:
        points.append(sentence)  # a call that is slow or costs money belongs here
        ctx.checkpoint(len(points), points)
    return Outline(points=points)


def has_points(ctx: GateContext, output: Outline) -> None:
    """Refuse an outline of nothing; then the run waits for a person."""
    if not output.points:
        raise GatePolicyFailure(
            check_id="has_points",
            finding="The document has no sentence.",
            remediation=f"Start a run with a text, and cancel this one: {ctx.run_id}.",
        )


def summarize(ctx: StepContext, given: Outline) -> Summary:
    """Return the points as one text."""
    ctx.progress(0.5, f"{len(given.points)} points")
    return Summary(text="; ".join(given.points))
