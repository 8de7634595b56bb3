"""The command line as a fixture."""

from tests.cli import Cli, cli, new_machine, rubric_file

__all__ = ["Cli", "cli", "new_machine", "rubric_file"]
