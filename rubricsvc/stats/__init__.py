"""Statistics over verdicts, labels and rewards, on numpy, scipy and scikit-learn. ``core`` never imports it."""

from collections.abc import Callable

MIN_PAIRS = 5  # fewer pairs of values than this give no estimate
RESAMPLES = 300  # bootstrap draws of an interval

OnProgress = Callable[[int, int, str], None]  # called with the number done, the total, and a note
