"""Deployment to Google Cloud: the tables, the bundle, and the resources of an installation."""
