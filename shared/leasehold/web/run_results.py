"""The routes of a run's results: outputs as the JSON they are, files as bytes.

A file may be anything, and come from anybody. A browser is told to save it, and never to show it
as a page of this address, whose scripts could do what the reader may do here.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final
from urllib.parse import quote

import flask
from werkzeug.http import dump_options_header

from leasehold.api.results import SIZE_HEADER, FilesQuery, FilesResponse
from leasehold.services.read_results import list_files, open_file, read_input, read_output
from leasehold.web.responses import respond, respond_json_text
from leasehold.web.route import Call

#: Google's servers take no larger answer that says its length; a larger one is sent in chunks.
_MOST_WITH_LENGTH: Final = 31 * 1024 * 1024

_SAVE_ONLY: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def run_input(call: Call[None]) -> flask.Response:
    """What the run was started with, as it is."""
    return respond_json_text(read_input(call.engine, call.run_id))


def output(call: Call[None]) -> flask.Response:
    """The output of the run: that of its last step, as it is, once the run is completed."""
    return respond_json_text(read_output(call.engine, call.run_id))


def step_output(call: Call[None]) -> flask.Response:
    """The output of a step, as it is; also one that a gate holds back for a decision."""
    return respond_json_text(read_output(call.engine, call.run_id, call.step))


def files(call: Call[FilesQuery]) -> flask.Response:
    """The files that handlers of the run stored, and their sizes."""
    query = call.given
    page = list_files(call.engine, call.run_id, limit=query.limit, page_token=query.page_token)
    return respond(FilesResponse.of(page))


def file(call: Call[None]) -> flask.Response:
    """The bytes of a file; its name may have `/`. HEAD answers its size alone."""
    with ExitStack() as opened:
        content = opened.enter_context(open_file(call.engine, call.run_id, call.name))
        answer = flask.Response(content.blocks, mimetype="application/octet-stream")
        answer.headers.update(_SAVE_ONLY)
        answer.headers.set(SIZE_HEADER, str(content.size))
        answer.headers.set("Content-Disposition", _attachment(call.name.rpartition("/")[2]))
        if content.size <= _MOST_WITH_LENGTH:
            answer.content_length = content.size
        answer.call_on_close(opened.pop_all().close)
    return answer


def _attachment(name: str) -> str:
    """Return the header that tells a browser under which name to save a file, whatever it is.

    A header is ASCII: the whole name is in its encoded form, which browsers prefer.
    """
    ascii_name = "".join(one if one.isascii() else "_" for one in name)
    names = {"filename": ascii_name}
    if ascii_name != name:
        names["filename*"] = f"UTF-8''{quote(name, safe='')}"
    return dump_options_header("attachment", names)
