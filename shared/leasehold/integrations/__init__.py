"""Agent libraries at home in a step: their paid calls are recorded, and made once."""
