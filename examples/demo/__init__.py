"""`make demo`: the review pipeline under kills, in a server on this machine."""
