"""Rules of wording: two questions in one, vague words, negations, wording against the weight, leaked answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from rubricsvc.core.rubric import Criterion, Ordinal
from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.lint.registry import LintHit, Subject, pattern

MOST_READ = 2000
"""Characters of a text that are read: some patterns take time that grows with its square."""

_JUSTIFICATION = re.compile(r"\(?\b(?:Justification|Reference|Rationale|Reason): .*", re.S)
_PARENTHESES = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_FORMULA = re.compile(r"\$[^$]*\$|`[^`]*`|https?://\S+")
_QUOTED = re.compile(r"“[^”]*”|\"[^\"]*\"|(?<!\w)['‘][^'’]{2,80}['’](?!\w)")
_EXAMPLES = pattern("examples")
_REASON = pattern("reason")
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|\n+")
_TITLE = re.compile(r"^[^.:;?!]{3,160}: (?=[A-Z])")
_COMMENT = pattern("comment")
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


def demands(text: str) -> list[str]:
    """Return the sentences of a requirement that ask for something: no title, no comment, no reason."""
    sentences = [one.strip(" .;") for one in _SENTENCE.split(_TITLE.sub("", text))]
    kept = [one for number, one in enumerate(sentences) if one and not (number and _COMMENT.match(one))]
    return [re.sub(r"\s+", " ", _REASON.sub("", one)).strip() for one in kept]


_NEXT_VERB = pattern("next_verb")
_BUT_NOT = re.compile(r",? but (?:does|do|did|is|are) not\b.*|,? without\b.*|,? although\b.*|,? despite\b.*", re.I)
_CONDITION = pattern("condition")
_ASIDE = pattern("aside")
_NOT_ONLY = pattern("not_only")
_IDIOM = pattern("idiom")
_STEPS = re.compile(r"\bstep 1\b.*\bstep 2\b|(?:^|\n)\s*(?:[-*•]|\d[.)])\s.*\n\s*(?:[-*•]|\d[.)])\s", re.I | re.S)
_LIST = re.compile(r"[\w’'-]+(?: [\w’'/-]+){0,7}, (?:[\w’'/-]+(?: [\w’'/-]+){0,9}, )*(?:and|as well as|plus) ", re.I)
_PAIR_OBJECT = pattern("pair_object")


def second_question(text: str, *, pitfall: bool = False) -> str | None:
    """Return the words that begin a second demand in the text of a criterion.

    The faults that a pitfall lists are mostly examples of one: only a second verb counts there.
    """
    if _STEPS.search(text[:MOST_READ]):
        return "asks more than one thing: a list of steps"
    asked = _IDIOM.sub("X", requirement(text))
    sentences, words = demands(asked), ""
    if not pitfall:
        title = _TITLE.match(asked)
        if found := _NOT_ONLY.search(asked):
            words = found[0]
        elif len(sentences) > 1 and sum(len(one.split()) >= 4 for one in sentences) > 1:
            words = sentences[1]
        elif title and " and " in title[0]:
            words = title[0]
    if sentences and not words:
        clause = _ASIDE.sub("", _BUT_NOT.sub("", sentences[0]))
        found = _NEXT_VERB.search(clause)
        if not found and not pitfall:
            found = _LIST.search(_CONDITION.sub("", clause)) or _PAIR_OBJECT.search(clause)
        words = found[0] if found else ""
    line = " ".join(words.split())
    return f"asks more than one thing: “{line if len(line) <= 60 else line[:59] + '…'}”" if line else None


_FAULT = pattern("fault")
_VIRTUE = pattern("virtue")
_NEGATED = pattern("negated")
_MIRROR = re.compile(r"^\W*(?:correctly|accurately|appropriately|clearly|properly|avoids?|refrains?)\b", re.I)
_FAULT_NEXT = re.compile(r"\s*(?:mis\w+|fails?|omits?|ignores?|wrong\w*|incorrect\w*|inaccurate\w*|does not)\b", re.I)
_ABSENCE = pattern("absence")
_ALSO_POSITIVE = pattern("also_positive")
_PROTOCOL = re.compile(r"\bif (?:yes|no|not|present|absent)\b,? (?:then )?(?:it )?(?:fail|pass)", re.I)


def sign(criterion: Criterion) -> str | None:
    """Return a fault with a positive weight, or a virtue with a negative one."""
    if _PROTOCOL.search(criterion.text[:MOST_READ]):
        return None  # "if yes, fail" turns the verdict around
    text = next(iter(demands(requirement(criterion.text))), "")
    found = _FAULT.search(text) if criterion.weight > 0 else _VIRTUE.search(text) if criterion.weight < 0 else None
    if found is None:
        return None
    if criterion.weight < 0:  # a text that begins with a virtue may go on to a fault
        end = found.end()
        if _FAULT_NEXT.match(text, end) if _MIRROR.match(text) else _FAULT.search(text) or _NEGATED.search(text, end):
            return None
    kind = "fault" if criterion.weight > 0 else "virtue"
    return f"“{_short(found[0])}” is a {kind}, and the weight is {criterion.weight:g}"


def absence(criterion: Criterion) -> str | None:
    """Return the words by which an empty text would meet a criterion with a positive weight."""
    text = requirement(criterion.text)
    found = _ABSENCE.match(text) if criterion.weight > 0 else None
    return f"an empty text meets “{_short(found[0])}…”" if found and not _ALSO_POSITIVE.search(text) else None


def matches(name: str, message: str, *, whole: bool = False) -> Callable[[Criterion], str | None]:
    """Return the rule that reports the first match of a pattern in the requirement, or in the ``whole`` text."""
    found_in = pattern(name)

    def find(criterion: Criterion) -> str | None:
        found = found_in.search(criterion.text[-MOST_READ:] if whole else requirement(criterion.text))
        return f"“{_short(found[0])}” {message}" if found else None

    return find


def _short(text: str) -> str:
    return " ".join(text.split()).strip(" .,:;")[:60]


LONGEST = 120
"""Words of a criterion."""

_VAGUE = pattern("vague")
_OBSERVABLE = pattern("observable")
_PLACEHOLDER = pattern("placeholder")
_UPPER_ONLY = re.compile(r"^x{2,}$")
_MATHS = re.compile(r"\$[^$\n]*\$|`[^`\n]*`|\\[a-zA-Z]+(?:\{[^{}]*\})*")


def vague(criterion: Criterion) -> str | None:
    """Return a word of quality beside which nothing observable stands."""
    if any(level.text for level in getattr(criterion.scale, "levels", ())):
        return None  # the levels say what the word means
    text = criterion.text[:MOST_READ]
    found = None if _OBSERVABLE.search(text) else _VAGUE.search(text)
    return f"“{' '.join(found[0].split())[:60]}” names nothing that a judge can see" if found else None


def unknown_placeholder(criterion: Criterion) -> str | None:
    """Return a placeholder that was not filled in."""
    found = (one[0] for one in _PLACEHOLDER.finditer(_MATHS.sub("", criterion.text[:MOST_READ])))
    first = next((one for one in found if not _UPPER_ONLY.match(one)), None)
    return f"“{first}” is a placeholder" if first else None


def too_long(criterion: Criterion) -> str | None:
    """Return the number of words of a long criterion."""
    count = len(_WORD.findall(criterion.text)) if len(criterion.text) > 4 * LONGEST else 0
    return f"{count} words" if count > LONGEST else None


def invisible_text(criterion: Criterion) -> str | None:
    """Return an invisible character in what a judge is shown."""
    levels = criterion.scale.levels if isinstance(criterion.scale, Ordinal) else ()
    shown = [text for level in levels for text in (level.label, level.text)]
    texts = [criterion.text, criterion.reference or "", *(criterion.passages or ()), *shown]
    found = next(filter(None, map(INVISIBLE.search, texts)), None)
    return f"contains U+{ord(found[0]):04X}" if found else None


RUN = 12
"""Words in a row of a reference that are no chance in a prompt, if they are half of it."""
SHORTEST = 3
"""Characters of a whole reference that is looked for as it is."""
_ANSWERS_WORD = re.compile(r"\w+(?:[.,]\d+)*")
_ANSWER = pattern("answer")
_COPYING = pattern("copying")


def leaked_answer(subject: Subject) -> Iterator[LintHit]:
    """Find answers that the prompt contains: its reference, a criterion's, or one that a criterion states."""
    if subject.prompt is None:
        return
    shown = " ".join(one.content for one in subject.prompt.messages if one.role in ("user", "system", "developer"))
    prompt, copying = _normal(shown), bool(_COPYING.search(shown))
    reference = subject.prompt.reference
    if reference and (part := _shared(reference, prompt, copying)):
        yield None, f"the prompt contains its own reference answer: “{part}”"
    for criterion in subject.rubric.criteria:
        if criterion.reference and (part := _shared(criterion.reference, prompt, copying)):
            yield criterion, f"the prompt contains the criterion's reference: “{part}”"
        elif not copying and criterion.weight > 0 and criterion.check is None:
            answer = found[1].strip() if (found := _ANSWER.search(criterion.text)) else ""
            telling = any(one.isdigit() for one in answer) or len(answer.split()) > 1 or answer.istitle()
            if telling and _normal(answer).strip() and _normal(answer) in prompt:
                yield criterion, f"the prompt contains the answer: “{answer}”"


def _normal(text: str) -> str:
    return f" {' '.join(_ANSWERS_WORD.findall(text.casefold()))} "


def _shared(reference: str, prompt: str, copying: bool) -> str:
    """Return words of the reference that are in the prompt too: all of them, or a long run."""
    normal = _normal(reference)
    words = normal.split()
    if len(normal.strip()) >= SHORTEST and len(words) < RUN:
        whole = normal in prompt and not copying
        return " ".join(words) if whole else ""
    if copying and normal not in prompt:
        return ""
    length = max(RUN, len(words) // 2)
    for start in range(0, len(words) - length + 1):
        run = f" {' '.join(words[start : start + length])} "
        if run in prompt:
            return run.strip()[:80]
    return ""
