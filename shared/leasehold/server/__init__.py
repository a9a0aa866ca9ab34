"""`leasehold serve`: the API, the workers and the timer in one process."""
