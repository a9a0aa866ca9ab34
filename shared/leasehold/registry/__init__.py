"""Frozen tables: step types, pipelines, gates, channels, settings, dead-letter reasons."""
