"""Rules of wording: two questions in one, vague words, negations, wording against the weight, leaked answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from rubricsvc.core.rubric import Criterion, Ordinal
from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.lint.registry import LintHit, Subject, pattern, rule

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


_NEXT_VERB = pattern("next_verb")
_BUT_NOT = re.compile(r",? but (?:does|do|did|is|are) not\b.*|,? without\b.*|,? although\b.*|,? despite\b.*", re.I)
_CONDITION = pattern("condition")
_ASIDE = pattern("aside")
_NOT_ONLY = pattern("not_only")
_IDIOM = pattern("idiom")
_STEPS = re.compile(r"\bstep 1\b.*\bstep 2\b|(?:^|\n)\s*(?:[-*•]|\d[.)])\s.*\n\s*(?:[-*•]|\d[.)])\s", re.I | re.S)
_LIST = re.compile(r"[\w’'-]+(?: [\w’'/-]+){0,7}, (?:[\w’'/-]+(?: [\w’'/-]+){0,9}, )*(?:and|as well as|plus) ", re.I)
_PAIR_OBJECT = pattern("pair_object")


@rule("two-questions")
def _two_questions(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        if reason := second_question(criterion.text, pitfall=criterion.weight < 0):
            yield LintHit(criterion, f"asks more than one thing: {reason}")


def second_question(text: str, *, pitfall: bool = False) -> str | None:
    """Return the words that begin a second demand in the text of a criterion; None if there is none.

    The faults that a pitfall lists are mostly examples of one: only a second verb counts there.
    """
    if _STEPS.search(text[:MOST_READ]):
        return "a list of steps"
    asked = _IDIOM.sub("X", requirement(text))
    sentences = demands(asked)
    if not pitfall:
        if found := _NOT_ONLY.search(asked):
            return _excerpt(found[0])
        if len(sentences) > 1 and sum(len(one.split()) >= 4 for one in sentences) > 1:
            return _excerpt(sentences[1])
        if " and " in title_of(asked):
            return _excerpt(title_of(asked))
    for sentence in sentences[:1]:
        clause = _ASIDE.sub("", _BUT_NOT.sub("", sentence))
        found = _NEXT_VERB.search(clause)
        if not found and not pitfall:
            found = _LIST.search(_CONDITION.sub("", clause)) or _PAIR_OBJECT.search(clause)
        if found:
            return _excerpt(found[0])
    return None


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= 60 else line[:59] + '…'}”"


_FAULT = pattern("fault")
_VIRTUE = pattern("virtue")
_NEGATED = pattern("negated")
_MIRROR = re.compile(r"^\W*(?:correctly|accurately|appropriately|clearly|properly|avoids?|refrains?)\b", re.I)
_FAULT_NEXT = re.compile(r"\s*(?:mis\w+|fails?|omits?|ignores?|wrong\w*|incorrect\w*|inaccurate\w*|does not)\b", re.I)
_ABSENCE = pattern("absence")
_ALSO_POSITIVE = pattern("also_positive")
_PROTOCOL = re.compile(r"\bif (?:yes|no|not|present|absent)\b,? (?:then )?(?:it )?(?:fail|pass)", re.I)


@rule("sign")
def _sign(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        if _PROTOCOL.search(criterion.text[:MOST_READ]):
            continue  # "if yes, fail" turns the verdict around
        text = next(iter(demands(requirement(criterion.text))), "")
        if criterion.weight > 0 and (found := _FAULT.search(text)):
            yield LintHit(criterion, f"“{_short(found[0])}” is a fault, and the weight is {criterion.weight:g}")
        elif criterion.weight < 0 and (found := _VIRTUE.search(text)) and not _is_fault(text, found.end()):
            yield LintHit(criterion, f"“{_short(found[0])}” is a virtue, and the weight is {criterion.weight:g}")


def _is_fault(text: str, end: int) -> bool:
    """Return whether a text that begins with a virtue goes on to a fault."""
    if _MIRROR.match(text):
        return bool(_FAULT_NEXT.match(text, end))
    return bool(_FAULT.search(text) or _NEGATED.search(text, end))


@rule("absence")
def _absence(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        if criterion.weight > 0 and (found := _only_absence(criterion)):
            yield LintHit(criterion, f"an empty text meets “{_short(found)}…”")


def _only_absence(criterion: Criterion) -> str:
    text = requirement(criterion.text)
    found = _ABSENCE.match(text)
    return found[0] if found and not _ALSO_POSITIVE.search(text) else ""


_DIRECT: tuple[tuple[str, str, Callable[[str], str], str], ...] = (
    ("double-negation", "double", requirement, "negates twice"),
    ("dangling-reference", "dangling", requirement, "points at something that the judge does not see"),
    ("scoring-instruction", "instruction", lambda text: text[-MOST_READ:], "instructs the judge how to reply"),
)
"""Rules that report the first match of a pattern: rule, pattern, what is read of a text, and the message."""


def _report(name: str, pattern_name: str, read: Callable[[str], str], message: str) -> None:
    found_in = pattern(pattern_name)

    @rule(name)
    def find(subject: Subject) -> Iterator[LintHit]:
        for criterion in subject.judged:
            if found := found_in.search(read(criterion.text)):
                yield LintHit(criterion, f"“{_short(found[0])}” {message}")


for _row in _DIRECT:
    _report(*_row)


def _short(text: str) -> str:
    return " ".join(text.split()).strip(" .,:;")[:60]


LONGEST = 120
"""Words of a criterion."""

_VAGUE = pattern("vague")
_OBSERVABLE = pattern("observable")
_PLACEHOLDER = pattern("placeholder")
_UPPER_ONLY = re.compile(r"^x{2,}$")
_MATHS = re.compile(r"\$[^$\n]*\$|`[^`\n]*`|\\[a-zA-Z]+(?:\{[^{}]*\})*")


@rule("vague")
def _vague(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        if any(level.text for level in getattr(criterion.scale, "levels", ())):
            continue  # the levels say what the word means
        text = criterion.text[:MOST_READ]
        if not _OBSERVABLE.search(text) and (found := _VAGUE.search(text)):
            yield LintHit(criterion, f"“{' '.join(found[0].split())[:60]}” names nothing that a judge can see")


@rule("unknown-placeholder")
def _unknown_placeholder(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        for found in _PLACEHOLDER.finditer(_MATHS.sub("", criterion.text[:MOST_READ])):
            if not _UPPER_ONLY.match(found[0]):
                yield LintHit(criterion, f"“{found[0]}” is a placeholder")
                break


@rule("too-long")
def _too_long(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        if len(criterion.text) > 4 * LONGEST and (count := len(words(criterion.text))) > LONGEST:
            yield LintHit(criterion, f"{count} words")


@rule("invisible-text")
def _invisible_text(subject: Subject) -> Iterator[LintHit]:
    for criterion in subject.judged:
        levels = criterion.scale.levels if isinstance(criterion.scale, Ordinal) else ()
        shown = [text for level in levels for text in (level.label, level.text)]
        texts = [criterion.text, criterion.reference or "", *(criterion.passages or ()), *shown]
        if found := next(filter(None, map(INVISIBLE.search, texts)), None):
            yield LintHit(criterion, f"contains U+{ord(found[0]):04X}")


RUN = 12
"""Words in a row of a reference that are no chance in a prompt, if they are half of it."""
SHORTEST = 3
"""Characters of a whole reference that is looked for as it is."""
_ANSWERS_WORD = re.compile(r"\w+(?:[.,]\d+)*")
_ANSWER = pattern("answer")
_COPYING = pattern("copying")


@rule("leaked-answer")
def _leaked_answer(subject: Subject) -> Iterator[LintHit]:
    if subject.prompt is None:
        return
    shown = " ".join(one.content for one in subject.prompt.messages if one.role in ("user", "system", "developer"))
    prompt = _normal(shown)
    copying = bool(_COPYING.search(shown))
    reference = subject.prompt.reference
    if reference and (part := _shared(reference, prompt, copying)):
        yield LintHit(None, f"the prompt contains its own reference answer: “{part}”")
    for criterion in subject.rubric.criteria:
        if criterion.reference and (part := _shared(criterion.reference, prompt, copying)):
            yield LintHit(criterion, f"the prompt contains the criterion's reference: “{part}”")
        elif not copying and (answer := _stated_answer(criterion)) and _contains(prompt, _normal(answer)):
            yield LintHit(criterion, f"the prompt contains the answer: “{answer}”")


def _stated_answer(criterion: Criterion) -> str:
    found = _ANSWER.search(criterion.text) if criterion.weight > 0 and criterion.check is None else None
    answer = found[1].strip() if found else ""
    return answer if any(one.isdigit() for one in answer) or len(answer.split()) > 1 or answer.istitle() else ""


def _normal(text: str) -> str:
    return f" {' '.join(_ANSWERS_WORD.findall(text.casefold()))} "


def _contains(prompt: str, part: str) -> bool:
    return len(part.strip()) >= 1 and part in prompt


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
