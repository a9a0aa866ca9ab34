"""The API for remote workers: they claim a step, keep its lease and settle it over HTTP."""
