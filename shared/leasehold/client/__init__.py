"""The calls of the API for Python programs, over HTTP or directly on a store."""
