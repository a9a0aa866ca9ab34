"""The Python client: the calls of the API, over HTTP or directly on a store."""
