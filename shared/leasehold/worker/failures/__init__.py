"""The errors of handlers, as a run keeps them."""
