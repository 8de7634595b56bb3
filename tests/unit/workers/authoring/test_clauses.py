"""`workers.authoring.methods`: the clauses of a specification."""

from hypothesis import given
from hypothesis import strategies as st

from workers.authoring.methods import clauses_of

HOUSE = """What we want.

# Honesty
Say what you do not know.

##   Sources  of   facts ##
1. Name the source.
2. Quote it letter by letter,
   not from memory.

# Tone
# Honesty
Again.

```
# no heading
1. no number
```
"""


def test_clauses_are_named_by_heading_and_number() -> None:
    clauses = clauses_of(HOUSE)
    assert list(clauses) == ["preamble", "Honesty", "Sources of facts 1", "Sources of facts 2", "Honesty (2)"]
    assert clauses["Sources of facts 2"] == "2. Quote it letter by letter,\n   not from memory."
    assert "# no heading" in clauses["Honesty (2)"]


@given(st.text(alphabet="#12. ab\n`§()") | st.text())
def test_clauses_lose_no_text(text: str) -> None:
    clauses = clauses_of(text)
    headings = "".join(line for line in text.splitlines() if line.lstrip(" ").startswith("#"))
    kept, given_text = ("".join("".join(part).split()) for part in (clauses.values(), text))
    assert len(kept) + len("".join(headings.split())) >= len(given_text)
    assert all(clauses.values())
