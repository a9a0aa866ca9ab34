"""Clients of Google's APIs, for the doctor and for provisioning."""
