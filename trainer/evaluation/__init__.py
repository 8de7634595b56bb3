"""Evaluation of policies on held-out prompts, and the baselines that a run is compared with."""
