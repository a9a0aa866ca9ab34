"""Steps that note in a file which calls their process made, from its fork on: `hint_trace.py`.

The module imports nothing of the package: what is traced is what a child needs for any handler.
"""

import atexit
import json
import os
import sys
import threading

#: The folder in which each child leaves a file.
FOLDER = "LEASEHOLD_TRACE_FOLDER"

_calls: list = []  # type: ignore[type-arg] # the file of each call, and that of its caller


def no_op(ctx, given):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201, ARG001
    """Return what is given."""
    if _calls:  # it is a fork, and traced
        atexit.register(_leave)
    return given


def _begin():  # type: ignore[no-untyped-def] # noqa: ANN202
    if FOLDER in os.environ:  # else it is a fork of a process that only imported this, as of tests
        sys.setprofile(_note)
        threading.setprofile(_note)


def _note(frame, event, _argument):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    if event == "call":
        caller = frame.f_back
        _calls.append((frame.f_code.co_filename, caller and caller.f_code.co_filename))


def _leave():  # type: ignore[no-untyped-def] # noqa: ANN202
    sys.setprofile(None)
    with open(f"{os.environ[FOLDER]}/{os.getpid()}.json", "w") as file:  # noqa: PTH123
        json.dump([call for call in _calls if "leasehold" in call[0]], file)


os.register_at_fork(after_in_child=_begin)
