"""`workers.authoring.methods`: the clauses of a specification."""

from hypothesis import given
from hypothesis import strategies as st

from workers.authoring.methods import clauses_of


@given(st.text(alphabet="#12. ab\n`§()") | st.text())
def test_clauses_lose_no_text(text: str) -> None:
    clauses = clauses_of(text)
    headings = "".join(line for line in text.splitlines() if line.lstrip(" ").startswith("#"))
    kept, given_text = ("".join("".join(part).split()) for part in (clauses.values(), text))
    assert len(kept) + len("".join(headings.split())) >= len(given_text)
    assert all(clauses.values())
