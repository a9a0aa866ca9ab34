"""The documents port on a SQLite file: the embedded store."""

from leasehold.adapters.sqlite.documents import SqliteDocuments

__all__ = ["SqliteDocuments"]
