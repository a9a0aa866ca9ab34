"""`/runs/{id}/files`: the files of a run. Its outputs are answered as what they are: any JSON."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BeforeValidator

from leasehold.api import field_rules as rules
from leasehold.api.request_model import RequestModel
from leasehold.api.response_model import ResponseModel
from leasehold.services.limits import MAX_PAGE
from leasehold.services.read_results import FilePage

#: Says how large a file is, whether or not the answer has a Content-Length.
SIZE_HEADER: Final = "X-Leasehold-Size"


class FilesQuery(RequestModel):
    """`GET /runs/{id}/files`; its values come as text."""

    limit: Annotated[int, rules.whole(1, MAX_PAGE), BeforeValidator(rules.number_of_text)] = (
        MAX_PAGE
    )
    page_token: Annotated[str, rules.text("the nextPageToken of an earlier answer")] | None = None


class FileEntry(ResponseModel):
    """A file that a handler of the run stored, and its size in bytes."""

    name: str
    size: int


class FilesResponse(ResponseModel):
    """A page of files, sorted by name, and where the next one begins; null: there are no more."""

    files: list[FileEntry]
    next_page_token: str | None

    @classmethod
    def of(cls, page: FilePage) -> Self:
        """Return a page as it is answered."""
        files = [FileEntry(name=name, size=size) for name, size in page.sizes.items()]
        return cls(files=files, next_page_token=page.next_page_token)
