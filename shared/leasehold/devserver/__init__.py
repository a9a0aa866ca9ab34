"""`leasehold dev`: the deployed bundle on one machine, with local stand-ins for Google Cloud."""
