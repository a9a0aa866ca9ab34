"""Log lines: which attempt each was written in, and how people and Cloud Logging get them.

Only entry points (commands and functions) set up where lines go. Within a program of somebody
else's, Leasehold just adds to each record which attempt it is of.
"""
