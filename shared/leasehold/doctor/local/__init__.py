"""What can be silently wrong on this machine, a file a group of looks."""
