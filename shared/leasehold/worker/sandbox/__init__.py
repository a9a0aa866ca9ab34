"""The sandbox: one process for each attempt, forked from a process that has imported everything."""
