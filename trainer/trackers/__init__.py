"""Experiment trackers: where a run reports its metrics and evaluations beside its own files. One module each."""
