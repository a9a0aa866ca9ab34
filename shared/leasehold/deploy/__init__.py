"""What this bundle is deployed with: the table of functions, the bundle and the provisioning."""
