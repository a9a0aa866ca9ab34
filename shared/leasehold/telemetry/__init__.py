"""OpenTelemetry: which metrics and spans are sent, and how; imported only if it is switched on."""
