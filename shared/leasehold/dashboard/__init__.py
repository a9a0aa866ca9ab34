"""The dashboard: pages for people, made of what the rows of the table of calls answer.

Nothing here reads a run in another way, and nothing knows about HTTP: `web/pages.py` serves it.
"""
