"""OpenTelemetry: what is sent of the work, and how; imported only where it is switched on."""
