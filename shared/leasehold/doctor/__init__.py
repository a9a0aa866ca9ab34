"""The doctor: what is silently wrong, on this machine and in what is deployed.

It looks and never writes: no store is made, no file is changed, and no call of Google's that
writes is made. Each look is bounded, so one that hangs takes the others nothing.
"""
