"""Everything that calls a model or runs a check. Start at `queue.drain`, `scoring.completions`, `judges`."""
