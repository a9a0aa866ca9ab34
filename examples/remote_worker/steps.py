"""The steps that run in the bundle, and the model of the remote worker's output."""

from pathlib import Path

from pydantic import BaseModel, Field

from leasehold import PermanentError, StepContext


class Folder(BaseModel):
    """The input of a run: a folder with Markdown files."""

    folder: str


class Document(BaseModel):
    """A document to be summarised."""

    name: str
    text: str


class Documents(BaseModel):
    """The input of the remote worker."""

    documents: list[Document]


class Summary(BaseModel):
    """The most telling sentences of a document."""

    name: str
    sentences: list[str] = Field(max_length=3)


class Summaries(BaseModel):
    """The output of the remote worker."""

    summaries: list[Summary]


class Report(BaseModel):
    """Where the report is."""

    address: str
    documents: int


def gather(ctx: StepContext, given: Folder) -> Documents:
    """Read the Markdown files of the folder: the remote worker cannot see it."""
    folder = Path(given.folder)
    if not folder.is_dir():
        raise PermanentError(f"{folder} is not a folder; name one that is", code="folder_missing")
    files = sorted(folder.glob("*.md"))
    ctx.log.info("%s documents", len(files))
    return Documents(
        documents=[Document(name=file.name, text=file.read_text("utf-8")) for file in files]
    )


def report(ctx: StepContext, given: Summaries) -> Report:
    """Write the summaries down, as Markdown."""
    parts = [f"## {one.name}\n\n{' '.join(one.sentences)}\n" for one in given.summaries]
    address = ctx.artifacts.put("digest.md", "\n".join(["# Digest\n", *parts]).encode())
    return Report(address=address, documents=len(parts))
