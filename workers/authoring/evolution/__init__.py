"""Proposals of a model for the evolution of rubrics."""
