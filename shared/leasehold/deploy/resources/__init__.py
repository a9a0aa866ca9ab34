"""The resources of an installation, a file a kind."""
