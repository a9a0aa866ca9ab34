"""A function that does nothing: what one request costs under the framework's own server."""

import flask
import functions_framework


@functions_framework.http
def no_op(request: flask.Request) -> flask.Response:  # noqa: ARG001 - the framework's shape
    """Answer at once."""
    return flask.Response(b'{"outcome": "completed"}', mimetype="application/json")
