"""The command line as a fixture."""

from __future__ import annotations

from tests.cli import cli

__all__ = ["cli"]
