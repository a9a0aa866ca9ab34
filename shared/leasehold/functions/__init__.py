"""The entry files of the cloud functions, one for each function."""
