"""Engines over HTTP."""
