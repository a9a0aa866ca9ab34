"""Use cases, one for each file: each takes the engine and one request."""
