"""Statistics over verdicts, labels and rewards, on numpy, scipy and scikit-learn. ``core`` never imports it."""
