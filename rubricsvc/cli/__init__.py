"""The command line: one module for each noun. Data goes to stdout, progress and messages to stderr.

Exit codes: 0 success, 1 finished with failures, 2 wrong usage or invalid input, 3 not found or unavailable, 4 audit not
passed, 70 internal error, 130 interrupted.
"""
