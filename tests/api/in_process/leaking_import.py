"""A module of handlers that cannot be imported, and says so with a secret."""

from tests.api.in_process.leaking import words

raise ValueError(words("an_import"))
