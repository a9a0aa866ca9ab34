"""What stands in for Google Cloud on one machine."""
