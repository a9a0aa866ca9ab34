"""What can be silently wrong with what is deployed, a file a group of looks."""
