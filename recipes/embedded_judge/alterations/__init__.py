"""Sentences altered so that they say something else in almost the same words: for judge training and planted faults."""
