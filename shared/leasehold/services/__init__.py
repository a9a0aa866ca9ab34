"""Use cases, one for each file: a service takes the engine and a request."""
