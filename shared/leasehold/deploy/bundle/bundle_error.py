"""Why there is no bundle."""

from __future__ import annotations


class BundleError(Exception):
    """What is wrong and what to do about it, in one line; nothing was written."""
