"""Words that a judge cannot decide by, or cannot resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricsvc.core.rubric import Ordinal
from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.lint.registry import LintHit, Subject, rule
from rubricsvc.lint.text import MOST_READ, requirement, words

LONGEST = 120
"""Words of a criterion."""

_QUALITY = (
    "good|nice|great|excellent|perfect|flawless|superb|outstanding|high[- ]quality|quality|appropriate|adequate"
    "|proper|suitable|"
    "decent|reasonable|satisfactory|effective|engaging|compelling|interesting|captivating|creative|novel|original"
    "|unique|elegant|"
    "clear|well[- ]written|well[- ]structured|well[- ]organi[sz]ed|polished|professional|helpful|useful|relevant"
    "|natural|succinct|"
    "concise|comprehensive|thorough|detailed|sufficient|long|complete|rich|deep|insightful|strong|solid|robust"
    "|impressive|nuanced|"
    "meaningful|valuable|readable|coherent|correct|lengthy|better|best"
)
_GENERIC = (
    "response|answer|completion|content|text|essay|report|article|story|writing|output|reply|information"
    "|details?|structure|tone|"
    "style|format(?:ting)?|language|quality|advice|explanation|presentation|work|piece|summary|idea"
    "|interpretation|clarity|"
    "manner|way|job|continuation|guidelines?|points?|insights?|analysis|examples?"
)
_ADVERBS = r"(?:(?:\w+ly|very|so|not only|not too|too|really|quite|more) )*"
_ADJECTIVES = rf"{_ADVERBS}(?:{_QUALITY})"
_VAGUE = re.compile(
    rf"\b{_ADJECTIVES}(?:,? (?:and|but|or) {_ADJECTIVES})*(?:, {_ADJECTIVES})* (?:{_GENERIC})\b"
    rf"|\b(?:{_GENERIC})\b[^.?!]{{0,40}}?\b(?:is|be|are|seems?|stays?) {_ADJECTIVES}\b"
    rf"|^\W*(?:is|are) the (?:\w+[- ]){{0,5}}(?:{_GENERIC})\b[^.?!]{{0,60}}? {_ADJECTIVES}\b"
    r"|\b(?:flawless|perfect|top[- ]notch|as good as possible|of (?:good|high) quality|well[- ]written|well done"
    r"|room for improvement)\b"
    r"|\bsome general \w+",
    re.I,
)
_OBSERVABLE = re.compile(
    r"\d|[\"“(]|\b(?:such as|e\.g\.|for example|for instance|including|that (?:is|are|the|a|an|it|there)"
    r"|states? that|how to|about the|"
    r"namely|specifically|at least|at most|no more than|each|every|bullet|bold|heading|table|list|by \w+ing"
    r"|names?|cites?|quot\w+|"
    r"words?|sentences?|paragraphs?|rather than|instead of|compared (?:to|with)|between|not to|(?:advice"
    r"|instructions?|guidance|steps) (?:to|for|on|not)|(?:information|explanation|details) (?:on|about|of))\b",
    re.I,
)
_DANGLING = re.compile(
    r"\b(?:as|the|is|it) (?:\w+ ){0,3}(?:mentioned|described|stated|listed|noted|discussed|defined|given"
    r"|specified|outlined) (?:above|below|earlier|previously|before)\b"
    r"|\b(?:as|than|like|see|from|of|in|to|judge it|with) (?:the )?above\b(?! the\b| all\b| average| \d)"
    r"|\bthe (?:above|aforementioned|aforesaid|foregoing|below)\b(?!-)"
    r"|\b(?:previous|preceding|earlier|next|following|last|first|second|third|other|another|same) (?:criteri(?:on"
    r"|a)|rubric|item in the rubric|checklist item)\b"
    r"|\b(?:criterion|criteria|rubric item|item|c) ?#?\d+\b"
    r"|\bthe item above\b|\bin the same way as (?:before|above|criterion)\b|\baforementioned\b"
    r"|\b(?:of|for|with|to) (?:the )?other (?:techniques|methods|approaches|models|ones|points|aspects|items"
    r"|factors|systems) as well\b"
    r"|\bditto\b|\bidem\b|\bas before\b|\bsame as (?:before|above|the previous)\b",
    re.I,
)
_INSTRUCTION = re.compile(
    r"\bif (?:yes|no|not|present|absent|so)\b,? (?:then )?(?:it )?(?:fail|pass)\w*|\bmark (?:\w+"
    r" )?criteria?_?met\b|\bcriteria_met\b"
    r"|\b(?:answer|reply|respond|output|return)(?: only)?(?: with)? (?:yes|no|true|false|0|1|json|\"(?:yes|no"
    r"|true|false)\")\b"
    r"|\bdetermine the (?:checklist )?score\b|\bif (?:both|all|any of the|the) steps? (?:pass|fail)"
    r"|\b(?:give|assign|award) (?:it )?(?:a )?(?:score|zero|full marks|no points|0 points)\b",
    re.I,
)
_PLACEHOLDER = re.compile(
    r"\{\{[^{}\n]{0,80}\}\}"
    r"|(?<![\\_^\w$}]){[A-Za-z][A-Za-z0-9_. -]{1,40}}"
    r"|\[(?:insert|your|name|topic|fill in|add|todo|tbd|placeholder|specify|enter|company|city|date|source"
    r"|x+)\b[^\]\n]{0,40}\]"
    r"|<(?!/|br|p>|b>|i>|li>|ul>|em>|code|think|answer|s>)(?:insert |your )?[a-z][a-z_]*(?:[ _-][a-z]+){0,4}>"
    r"|\b(?:TODO|TBD|FIXME|LOREM IPSUM|T\.B\.D\.)\b|\bX{2,}\b(?!-)|\bXYZ\b|_{3,}|\?{3,}|%\([a-z_]+\)s|\$\{[a-z_]+\}",
    re.I,
)
_UPPER_ONLY = re.compile(r"^x{2,}$")
_MATHS = re.compile(r"\$[^$\n]*\$|`[^`\n]*`|\\[a-zA-Z]+(?:\{[^{}]*\})*")


@rule(
    "vague",
    "warning",
    why="Words of quality mean something else to every judge. Verdicts on them repeat badly, follow length and"
    " style, and are the"
    " first that a policy learns to please.",
    fix="Name what a reader would see in a good completion: a fact, a number, a part, an example (“such as …”).",
    bad="The response is well written and helpful.",
    good="Says in its first two sentences whether to see a doctor.",
)
def vague(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that turn on a word of quality, with nothing observable beside it."""
    for criterion in subject.judged:
        if any(level.text for level in getattr(criterion.scale, "levels", ())):
            continue  # the levels say what the word means
        text = criterion.text[:MOST_READ]
        if not _OBSERVABLE.search(text) and (found := _VAGUE.search(text)):
            yield LintHit(criterion, f"“{' '.join(found[0].split())[:60]}” names nothing that a judge can see")


@rule(
    "dangling-reference",
    "error",
    why="Each criterion is judged by itself: the judge does not see the other criteria, nor what stood above it"
    " in a document.",
    fix="Repeat what is meant.",
    bad="Explains the above in plain words.",
    good="Explains in plain words why the fuse blew.",
)
def dangling_reference(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that point at another criterion, or at a text that the judge is not shown."""
    for criterion in subject.judged:
        if found := _DANGLING.search(requirement(criterion.text)):
            yield LintHit(criterion, f"“{' '.join(found[0].split())}” points at something that the judge does not see")


@rule(
    "scoring-instruction",
    "warning",
    why="The judge's template says how to reply. A second protocol in the criterion contradicts it: judges that"
    " obey it give"
    " replies that cannot be read, or turn the verdict around (“if yes, fail”).",
    fix="State what is met, and leave the form of the reply to the judge.",
    bad="Does the answer contain an error? If yes, fail.",
    good="Contains an error. (negative weight)",
)
def scoring_instruction(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that instruct the judge how to reply."""
    for criterion in subject.judged:
        if found := _INSTRUCTION.search(criterion.text[-MOST_READ:]):
            yield LintHit(criterion, f"“{' '.join(found[0].split())}” instructs the judge how to reply")


@rule(
    "unknown-placeholder",
    "error",
    why="Nothing fills it in: the judge reads the braces.",
    fix="Write what belongs there, or put formulas in $…$ and code in `…`.",
    bad="Recommends a hotel in {city}.",
    good="Recommends a hotel in Lisbon.",
)
def unknown_placeholder(subject: Subject) -> Iterator[LintHit]:
    """Find parts that were left to be filled in."""
    for criterion in subject.judged:
        for found in _PLACEHOLDER.finditer(_MATHS.sub("", criterion.text[:MOST_READ])):
            if not _UPPER_ONLY.match(found[0]):
                yield LintHit(criterion, f"“{found[0]}” is a placeholder")
                break


@rule(
    "too-long",
    "info",
    why="Long criteria hide several demands, and each judge call pays for them. Judges follow the beginning and"
    " the end.",
    fix=f"Keep what decides the verdict, in at most {LONGEST} words; put background into the criterion's passages.",
    bad="A page of definitions, with the demand in its last sentence.",
    good="The demand, in one sentence.",
)
def too_long(subject: Subject) -> Iterator[LintHit]:
    """Find criteria of more words than a judge follows."""
    for criterion in subject.judged:
        if len(criterion.text) > 4 * LONGEST and (count := len(words(criterion.text))) > LONGEST:
            yield LintHit(criterion, f"{count} words")


@rule(
    "invisible-text",
    "error",
    why="Zero-width and direction characters are not seen by the editor and are read by the model.",
    fix="Remove them.",
    bad="Names the\u200b cause.".replace("\u200b", "<U+200B>"),
    good="Names the cause.",
)
def invisible_text(subject: Subject) -> Iterator[LintHit]:
    """Find characters that a reader does not see, in all that the judge reads."""
    for criterion in subject.judged:
        levels = criterion.scale.levels if isinstance(criterion.scale, Ordinal) else ()
        shown = [text for level in levels for text in (level.label, level.text)]
        texts = [criterion.text, criterion.reference or "", *(criterion.passages or ()), *shown]
        if found := next(filter(None, map(INVISIBLE.search, texts)), None):
            yield LintHit(criterion, f"contains U+{ord(found[0]):04X}")
