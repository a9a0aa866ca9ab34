"""The entries of the functions, a file each; a bundle has them in `functions/`."""
