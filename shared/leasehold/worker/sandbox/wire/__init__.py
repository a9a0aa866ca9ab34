"""What crosses the socket between a worker and its child."""
