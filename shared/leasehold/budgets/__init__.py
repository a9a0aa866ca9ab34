"""Limits that learn: the durations of a step's attempts set the limit of its next one.

Pure: no clock, no store, only the standard library's mathematics. `derive.py` has the story in
order, `samples.py` what goes in, `proposal.py` what comes out. The two estimates of a percentile
are in `survival.py` and `log_normal.py`. `tail_probe.py` is all that a dispatch needs.
"""
