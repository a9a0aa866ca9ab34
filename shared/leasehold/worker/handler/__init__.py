"""A handler and a gate: how they are found, checked and called."""
