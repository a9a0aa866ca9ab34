"""HTTP: what the functions answer. Parsing and answering only; the stories are services."""
