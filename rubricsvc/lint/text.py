"""The text of a criterion as the rules of wording read it."""

from __future__ import annotations

import re
from functools import lru_cache

MOST_READ = 2000
"""Characters of a text that are read: some patterns take time that grows with its square."""

_JUSTIFICATION = re.compile(r"\(?\b(?:Justification|Reference|Rationale|Reason): .*", re.S)
_PARENTHESES = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_FORMULA = re.compile(r"\$[^$]*\$|`[^`]*`|https?://\S+")
_QUOTED = re.compile(r"“[^”]*”|\"[^\"]*\"|(?<!\w)['‘][^'’]{2,80}['’](?!\w)")
_EXAMPLES = re.compile(
    r",?\s*\b(?:such as|for example|for instance|e\.g\.,?|i\.e\.,?|namely|ranging from)\b"
    r"(?:(?![.;?!](?:\s|$)|,? (?:and|but|while) (?:\w+ly )?(?:also |then |advis|recommend|explain|mention|suggest"
    r"|avoid|"
    r"provid|emphasi|refer|seek|clarif|discuss|describ|stat)\w*).)*",
    re.S | re.I,
)
_REASON = re.compile(
    r"(?:, (?:as(?! well)|since|because|given that|so that|which|thereby|ensuring|making|helping|allowing|reducing|"
    r"fulfilling|directly (?:addressing|responding)|as (?:per|shown|instructed|required|requested|implied))\b|"
    r" (?:because|in order to|so that)\b)[^.;?!]*",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|\n+")
_TITLE = re.compile(r"^[^.:;?!]{3,160}: (?=[A-Z])")
_COMMENT = re.compile(
    r"(?:This|These|That|It(?! (?:must|should|also))|Use a|Rate|Score|Mark|Answer|Reply"
    r"|Return|Award|Assign|Insight"
    r"|Failure|Omission|Omitting|Note|If|For example|For instance|Each|Comprehensive|"
    r"Examples?|Alternative|Such|Here|Otherwise|E\.g)\b",
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*|\d[\d.,%]*")


@lru_cache(maxsize=4096)
def requirement(text: str) -> str:
    """Return what the criterion asks, without its justification, examples, formulas and what is in parentheses."""
    text = _JUSTIFICATION.sub("", text[:MOST_READ])
    text = _FORMULA.sub("X", text)
    for _ in range(3):  # nested ones
        text = _PARENTHESES.sub("", text)
    text = _QUOTED.sub("X", text)
    return re.sub(r"[ \t]+", " ", _EXAMPLES.sub("", text)).strip()


def title_of(text: str) -> str:
    """Return the title before the text ("Clarity of Style: Assesses …"), or nothing."""
    found = _TITLE.match(text)
    return found[0] if found else ""


def demands(text: str) -> list[str]:
    """Return the sentences of a requirement that ask for something: no title, no comment, no reason."""
    sentences = [one.strip(" .;") for one in _SENTENCE.split(_TITLE.sub("", text))]
    kept = [one for number, one in enumerate(sentences) if one and not (number and _COMMENT.match(one))]
    return [re.sub(r"\s+", " ", _REASON.sub("", one)).strip() for one in kept]


def words(text: str) -> list[str]:
    """Return the words and numbers of a text, as they are written."""
    return _WORD.findall(text)
