"""Training of policies on rubric rewards. Read `loop` first: sample, score, advantages, loss, step, record."""
