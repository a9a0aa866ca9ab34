"""The bundle: the folder that is uploaded as the source of every function."""

from __future__ import annotations


class BundleError(Exception):
    """What is wrong and what to do about it, in one line; nothing was written."""
