"""Values and rules: pure functions with no clock, no store and no network."""
