"""Registries are data: frozen tables with an index, and no import of a handler."""
