"""What this project runs."""
