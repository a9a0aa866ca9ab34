"""Support for agent libraries: their paid calls in a step are recorded, and made once."""
