"""How a process of workers stops, and how its leases name it."""
