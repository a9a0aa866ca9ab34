"""The bundle: the folder that is uploaded as the source of every function."""
