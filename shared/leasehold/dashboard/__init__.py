"""The dashboard: pages for people, made from the answers of the API's calls.

Nothing here reads a run in another way, and nothing knows about HTTP: `web/pages.py` serves it.
"""
