"""The command line: one module for each noun. Data goes to stdout, progress and messages to stderr."""
