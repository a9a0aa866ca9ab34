"""The interfaces to the outside world, as Protocols of a few methods."""
