"""Ports of the loopback interface, for servers of tests."""

from leasehold.devserver.function_processes import own_port

__all__ = ["own_port"]
