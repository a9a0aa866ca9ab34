"""`/runs/{id}/files` and `/calls`. Outputs of a run are answered as what they are: any JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

import pydantic_core
from pydantic import AwareDatetime, BeforeValidator

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.domain.checkpoint import CallResult
from leasehold.domain.spend import Spend
from leasehold.services.read_results import CallPage, FilePage
from leasehold.services.request_bounds import MAX_PAGE_ITEMS

#: Says how large a file is, whether or not the answer has a Content-Length.
SIZE_HEADER: Final = "X-Leasehold-Size"


class PageQuery(RequestModel):
    """`GET /runs/{id}/files` and `/calls`; its values come as text."""

    limit: Annotated[int, rules.whole(1, MAX_PAGE_ITEMS), BeforeValidator(rules.number_of_text)] = (
        MAX_PAGE_ITEMS
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


class CallReport(ResponseModel):
    """The result of a call that a handler had made once (`ctx.once`); it is not made again."""

    step: str
    trial: int
    key: str
    type: str
    keep: bool
    result: Any
    is_large: bool
    is_open: bool = False  # it is under way, or a person is asked whether it has happened
    at: AwareDatetime | None = None  # these four are not known of one that an older version made
    attempt: int | None = None
    took_s: float | None = None
    bytes: int | None = None
    spend: Spend | None = None  # of the call; null: nothing

    @classmethod
    def of(cls, call: CallResult) -> Self:
        """Return a result as it is answered."""
        text = call.inline
        return cls(
            step=call.step,
            trial=call.trial,
            key=call.key,
            type=call.type,
            keep=bool(call.keep),
            result=None if text is None else _value_of(text),
            is_large=text is None and not call.is_open,
            is_open=bool(call.is_open),
            at=call.at,
            attempt=call.attempt,
            took_s=call.took_s,
            bytes=call.text_bytes,
            spend=call.spend,
        )


def _value_of(text: str) -> Any:
    """Return the value of a JSON text; of one that was edited, or damaged, the text itself."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        return text


class CallsResponse(ResponseModel):
    """`GET /runs/{id}/calls`: the results that the run has now, in the order of the calls."""

    calls: list[CallReport]
    next_page_token: str | None = None

    @classmethod
    def of(cls, page: CallPage) -> Self:
        """Return a page as it is answered."""
        calls = [CallReport.of(one) for one in page.calls]
        return cls(calls=calls, next_page_token=page.next_page_token)
