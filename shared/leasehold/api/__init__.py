"""The HTTP API as data: a row for each call, and a model for each request and response.

The server reads requests and writes responses with them; the client does the reverse. Routes are
in `web/`, the client in `client/`, and use cases in `services/`.
"""
