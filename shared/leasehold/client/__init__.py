"""The engine from outside: the calls of `leasehold.api.calls`, over HTTP or on a store."""
