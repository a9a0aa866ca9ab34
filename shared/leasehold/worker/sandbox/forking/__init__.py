"""Processes: what forks them, how they are killed, and how much they take.

All of it is in the worker, but for the program of the fork server.
"""
