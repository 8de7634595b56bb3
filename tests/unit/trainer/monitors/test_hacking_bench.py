"""What ``make bench-hacking`` makes of its runs: onset, alarms, delays and its table."""

from __future__ import annotations
