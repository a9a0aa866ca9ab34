"""What runs a handler: its context, its lease, and the judgement of what it did."""
