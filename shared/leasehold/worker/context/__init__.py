"""The API of the engine for a running handler."""
