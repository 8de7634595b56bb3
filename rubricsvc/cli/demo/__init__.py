"""`rubricsvc demo`: a policy learns to search, open and cite in Python's language reference, with a report."""

from rubricsvc.cli.demo.command import demo

__all__ = ["demo"]
