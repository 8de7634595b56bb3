"""Runs on record: steps, rollouts and evaluations, delivered to a database or a service."""
