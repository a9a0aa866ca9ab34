"""What is deployed, as Google's APIs tell of it: for the doctor and for provisioning."""
