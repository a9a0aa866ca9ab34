"""`leasehold doctor`: finds hidden problems, on this machine and in a deployed installation.

It reads and never writes: it creates no store, changes no file, and makes no writing call to
Google. Each probe has a time limit, so one that hangs does not delay the others.
"""
