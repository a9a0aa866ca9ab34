"""`leasehold serve`: the runs API, workers and clockwork in one process, for one machine."""
