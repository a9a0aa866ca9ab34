"""Workers elsewhere: they claim a step, keep its lease and settle it over HTTP."""
