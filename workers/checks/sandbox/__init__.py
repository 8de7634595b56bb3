"""Untrusted code in a sandbox, and calls with a time limit in a child process."""
