"""What the command line says: answers on stdout, everything else on stderr.

A terminal gets tables and a live display; a pipe gets plain lines that stay as they are.
"""
