"""The ports' real ends: stores, queues, artifacts, the clock."""
