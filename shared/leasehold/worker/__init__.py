"""Running a handler: its context, its sandbox, its failures, and how a worker stops."""
