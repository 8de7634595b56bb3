"""`rubricsvc demo`: author, score, train and score again, on Python's language reference, with a report."""

from rubricsvc.cli.demo.command import demo

__all__ = ["demo"]
