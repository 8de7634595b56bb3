"""Where the examples of judge training come from: stored labels and verdicts, files, and questions by construction."""
