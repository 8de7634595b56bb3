"""Training of judges: a judge is a model too, and learns from labels, from another judge, and from made questions."""
