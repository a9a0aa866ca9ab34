"""The code that runs in the child, the process of an attempt."""
