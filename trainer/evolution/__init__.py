"""Rubrics that evolve while the policy trains."""
