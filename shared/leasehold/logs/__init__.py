"""Log lines: the attempt that each belongs to, and their forms for people and Cloud Logging.

Only entry points (commands and functions) decide where lines go. Inside a user's own program,
Leasehold only adds the attempt to each record.
"""
