"""Tables: step types, pipelines, schedules, gates, channels, settings, dead-letter reasons."""
