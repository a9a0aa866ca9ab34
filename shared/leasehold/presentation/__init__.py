"""What a run looks like to a person: the same words, whoever shows them and wherever.

Nothing here prints, and nothing knows of terminals or pages: those are for who shows it.
"""
