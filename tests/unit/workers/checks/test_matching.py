import pytest

from workers.checks.matching import search
from workers.checks.sandbox.child_process import ChildError


def test_search_counts_up_to_the_limit() -> None:
    assert search("a", "banana", limit=10, timeout_s=5) == 3
    assert search("a", "banana", limit=2, timeout_s=5) == 2
    assert search("x", "banana", limit=1, timeout_s=5) == 0


def test_search_recovers_from_a_timeout() -> None:
    with pytest.raises(ChildError, match="the pattern took longer"):
        search("(x+x+)+y", "x" * 60, limit=1, timeout_s=0.1)
    assert search("a", "a", limit=1, timeout_s=5) == 1


def test_search_takes_texts_larger_than_the_pipe() -> None:
    assert search("needle", "hay" * 1_000_000 + "needle", limit=1, timeout_s=30) == 1
