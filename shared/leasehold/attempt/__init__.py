"""One attempt of a step: every write under its lease, its renewal, and its settlement."""
