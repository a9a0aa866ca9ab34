"""The messages between a worker and its child, and their form on the socket."""
