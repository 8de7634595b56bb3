"""Rules of wording: two questions in one, vague words, negations, wording against the weight, leaked answers.

Each reads a criterion by the patterns of its language; in a language without any, what needs no words is still found.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from rubricsvc.core.rubric import Criterion, Ordinal
from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.lint.registry import CHECKED, UNKNOWN, Language, LintHit, Subject

MOST_READ = 2000  # characters of a text that are read: some patterns take time that grows with its square
LONGEST = 120  # words of a criterion
RUN = 12  # words in a row of a reference that are no chance in a prompt, if they are half of it
SHORTEST = 3  # characters of a whole reference that is looked for as it is
_PARENTHESES = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）")
_FORMULA = re.compile(r"\$[^$]*\$|`[^`]*`|https?://\S+|\\[a-zA-Z]+(?:\{[^{}]*\})*")
_QUOTED = re.compile(r"“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|\"[^\"]*\"|(?<!\w)['‘][^'’]{2,80}['’](?!\w)")
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|(?<=[。？！；])|\n+")
_TITLE = re.compile(r"^[^.:;?!]{3,160}: (?=[A-Z])")
_WORD = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]{1,2}|[^\W\d_][^\W\d_\u3040-\u9fff'’-]*|\d[\d.,%]*")  # or two of Han


@lru_cache(maxsize=4096)
def requirement(text: str, language: Language) -> str:
    """Return what the criterion asks, without its justification, examples, formulas and what is in parentheses."""
    text = language["justification"].sub("", text[:MOST_READ])
    text = _FORMULA.sub("X", text)
    for _ in range(3):  # nested ones
        text = _PARENTHESES.sub("", text)
    return re.sub(r"[ \t]+", " ", language["examples"].sub("", _QUOTED.sub("X", text))).strip()


def demands(text: str, language: Language) -> list[str]:
    """Return the sentences of a requirement that ask for something: no title, no comment, no reason."""
    sentences = [one.strip(" .;。") for one in _SENTENCE.split(_TITLE.sub("", text))]
    kept = [one for number, one in enumerate(sentences) if one and not (number and language["comment"].match(one))]
    return [re.sub(r"\s+", " ", language["reason"].sub("", one)).strip() for one in kept]


def second_question(criterion: Criterion, language: Language) -> str | None:
    """Return the words that begin a second demand in the text of a criterion.

    The faults that a pitfall lists are mostly examples of one: only a second verb counts there.
    """
    text, pitfall = criterion.text, criterion.weight < 0
    if language["steps"].search(text[:MOST_READ]):
        return "asks more than one thing: a list of steps"
    asked = language["idiom"].sub("X", requirement(text, language))
    sentences, words = demands(asked, language), ""
    if not pitfall:
        title = _TITLE.match(asked)
        if found := language["not_only"].search(asked) or language["list_by_marks"].search(asked):
            words = found[0]
        elif len(sentences) > 1 and language.patterns and sum(len(one.split()) >= 4 for one in sentences) > 1:
            words = sentences[1]
        elif title and language["and"].search(title[0]):
            words = title[0]
    if sentences and not words:
        clause = language["aside"].sub("", language["but_not"].sub("", sentences[0]))
        found = language["next_verb"].search(clause)
        if not found and not pitfall:
            found = language["list"].search(language["condition"].sub("", clause)) or language["pair"].search(clause)
        words = found[0] if found else ""
    line = " ".join(words.split())
    return f"asks more than one thing: “{line if len(line) <= 60 else line[:59] + '…'}”" if line else None


def sign(criterion: Criterion, language: Language) -> str | None:
    """Return a fault with a positive weight, or a virtue with a negative one."""
    if language["protocol"].search(criterion.text[:MOST_READ]):
        return None  # "if yes, fail" turns the verdict around
    text = next(iter(demands(requirement(criterion.text, language), language)), "")
    fault = language["fault"].search(text)
    found = fault if criterion.weight > 0 else language["virtue"].search(text) if criterion.weight < 0 else None
    if found and criterion.weight < 0:  # a text that begins with a virtue may go on to a fault
        end = found.end()
        mirrored = language["mirror"].match(text)
        if language["fault_next"].match(text, end) if mirrored else fault or language["negated"].search(text, end):
            return None
    kind = "fault" if criterion.weight > 0 else "virtue"
    return f"“{_short(found[0])}” is a {kind}, and the weight is {criterion.weight:g}" if found else None


def absence(criterion: Criterion, language: Language) -> str | None:
    """Return the words by which an empty text would meet a criterion with a positive weight."""
    text = requirement(criterion.text, language)
    found = language["absence"].match(text) if criterion.weight > 0 else None
    positive = language["also_positive"].search(text)
    return f"an empty text meets “{_short(found[0])}…”" if found and not positive else None


def match(criterion: Criterion, language: Language, *, name: str, message: str, whole: bool = False) -> str | None:
    """Return the first match of a pattern in the requirement, or in the ``whole`` text, with a message."""
    found = language[name].search(criterion.text[-MOST_READ:] if whole else requirement(criterion.text, language))
    return f"“{_short(found[0])}” {message}" if found else None


def _short(text: str) -> str:
    return " ".join(text.split()).strip(" .,:;")[:60]


def vague(criterion: Criterion, language: Language) -> str | None:
    """Return a word of quality beside which nothing observable stands."""
    if any(level.text for level in getattr(criterion.scale, "levels", ())):
        return None  # the levels say what the word means
    text = criterion.text[:MOST_READ]
    found = None if language["observable"].search(text) else language["vague"].search(text)
    return f"“{_short(found[0])}” names nothing that a judge can see" if found else None


def unknown_placeholder(criterion: Criterion, language: Language) -> str | None:
    """Return a placeholder that was not filled in."""
    found = language["placeholder"].search(_FORMULA.sub("", criterion.text[:MOST_READ]))
    return f"“{found[0]}” is a placeholder" if found else None


def too_long(criterion: Criterion, language: Language) -> str | None:
    """Return the number of words of a long criterion."""
    count = len(_WORD.findall(criterion.text))
    return f"{count} words" if count > LONGEST else None


def invisible_text(criterion: Criterion, language: Language) -> str | None:
    """Return an invisible character in what a judge is shown."""
    levels = criterion.scale.levels if isinstance(criterion.scale, Ordinal) else ()
    shown = [text for level in levels for text in (level.label, level.text)]
    texts = [criterion.text, criterion.reference or "", *(criterion.passages or ()), *shown]
    found = next(filter(None, map(INVISIBLE.search, texts)), None)
    return f"contains U+{ord(found[0]):04X}" if found else None


def unchecked_language(subject: Subject) -> Iterator[LintHit]:
    """Find the languages whose wording is not checked, each once."""
    names = Counter(one.name for one in subject.languages.values() if one not in CHECKED)
    checked = ", ".join(one.name for one in CHECKED)
    for name, count in names.items():
        what = "" if count == len(subject.languages) else f" of {count} of {len(subject.languages)} criteria"
        yield None, f"wording{what} is not checked: language looks like {name}; checked: {checked}"


def leaked_answer(subject: Subject) -> Iterator[LintHit]:
    """Find answers that the prompt contains: its reference, a criterion's, or one that a criterion states."""
    if subject.prompt is None:
        return
    shown = " ".join(one.content for one in subject.prompt.messages if one.role in ("user", "system", "developer"))
    prompt, copying = _normal(shown), any(one["copying"].search(shown) for one in CHECKED)
    if subject.prompt.reference and (part := _shared(subject.prompt.reference, prompt, copying)):
        yield None, f"the prompt contains its own reference answer: “{part}”"
    for criterion in subject.rubric.criteria:
        if criterion.reference and (part := _shared(criterion.reference, prompt, copying)):
            yield criterion, f"the prompt contains the criterion's reference: “{part}”"
        elif not copying and criterion.weight > 0 and criterion.check is None:
            found = subject.languages.get(criterion.key, UNKNOWN)["answer"].search(criterion.text)
            answer = found[1].strip() if found else ""
            telling = any(one.isdigit() for one in answer) or len(answer.split()) > 1 or answer.istitle()
            if telling and _normal(answer).strip() and _normal(answer) in prompt:
                yield criterion, f"the prompt contains the answer: “{answer}”"


def _normal(text: str) -> str:
    return " ".join(["", *re.findall(r"\w+(?:[.,]\d+)*", text.casefold()), ""])


def _shared(reference: str, prompt: str, copying: bool) -> str:
    """Return words of the reference that are in the prompt too: all of them, or a long run."""
    normal = _normal(reference)
    words = normal.split()
    if len(normal.strip()) >= SHORTEST and len(words) < RUN:
        return " ".join(words) if normal in prompt and not copying else ""
    if copying and normal not in prompt:
        return ""
    length = max(RUN, len(words) // 2)
    for start in range(0, len(words) - length + 1):
        run = f" {' '.join(words[start : start + length])} "
        if run in prompt:
            return run.strip()[:80]
    return ""
