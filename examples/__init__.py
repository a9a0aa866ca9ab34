"""Examples: a demo that kills its workers, and a worker in another process."""
