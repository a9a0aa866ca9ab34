"""HTTP: requests are parsed, passed to a service, and answered."""
