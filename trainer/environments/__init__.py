"""Environments of a policy: collections of documents that it can search and quote."""
