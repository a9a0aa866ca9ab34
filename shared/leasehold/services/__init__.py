"""What the engine does, one story a file; each takes the engine's parts and one request."""
