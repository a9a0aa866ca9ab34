"""Tools of those who develop Leasehold."""
