"""Phases that the pipeline calls: plan, bootstrap, catch-up, replay, register, watch."""
