"""The same fake agent on each durable engine: the program that `bench.agents` runs in each."""
