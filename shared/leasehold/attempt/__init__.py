"""One attempt of a step: what is written under its lease, what renews it, what a context asks."""
