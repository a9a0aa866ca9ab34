"""Implementations of ports: stores, queues, event buses, artifacts, channels, the clock."""
