"""What the engine needs of the world, as Protocols of a few methods each."""
