"""Models split by layers: stages, schedules, and the step that goes through them."""
