"""`leasehold serve`: the API, the workers and the clockwork in one process."""
