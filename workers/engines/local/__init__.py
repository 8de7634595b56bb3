"""Engines with a model in this process."""
