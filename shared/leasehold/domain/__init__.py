"""Pure values and decisions: no clock, no store, no network."""
