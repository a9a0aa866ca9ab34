"""What a handler may ask of the engine while it runs."""
