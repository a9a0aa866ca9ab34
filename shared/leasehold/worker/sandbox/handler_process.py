"""What runs in the process of an attempt: the child's side of the conversation."""

from __future__ import annotations

import socket


def run(call: socket.socket, handler: str) -> None:
    """Run a handler for the worker at the other end.

    Args:
        call: the conversation with the worker.
        handler: `module:function`.
    """
    raise NotImplementedError
