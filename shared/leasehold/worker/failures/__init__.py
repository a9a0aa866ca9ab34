"""What a handler raised, as a run keeps it."""
