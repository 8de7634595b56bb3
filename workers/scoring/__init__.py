"""From a completion (or a group, or a trajectory) to verdicts."""
