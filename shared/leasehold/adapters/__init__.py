"""The ports on real systems: stores, queues, artifacts, the clock."""
