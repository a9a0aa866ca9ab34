"""The ports on real systems: stores, queues, event buses, artifacts, channels, the clock."""
