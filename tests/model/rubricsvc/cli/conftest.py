"""The command line as a fixture."""

from __future__ import annotations

from tests.cli import Cli, cli, new_machine, rubric_file

__all__ = ["Cli", "cli", "new_machine", "rubric_file"]
