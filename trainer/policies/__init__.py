"""The policy: its prompts as tokens, sampled completions and episodes, log-probabilities."""
