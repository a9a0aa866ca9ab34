"""Words for people: how a run, a step and an event are shown on every screen.

Nothing here prints, and nothing knows about terminals or pages: commands and pages do that.
"""
