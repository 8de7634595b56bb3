"""Rubrics and completions written by a model."""
