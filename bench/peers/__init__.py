"""The same work on each durable engine: an agent for `bench.agents`, a list for `each_beside`."""
