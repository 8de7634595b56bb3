"""Rules of wording: two questions in one, vague words, negations, wording against the weight, leaked answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from rubricsvc.core.rubric import Criterion, Ordinal
from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.lint.registry import LintHit, Subject, rule

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


_VERBS = (
    "accept|acknowledg|address|adher|advis|affirm|align|allocat|allow|analy[sz]|answer|appl[iy]|articulat|ask"
    "|assess|assign|"
    "avoid|balanc|begin|brief|calculat|captur|caution|check|cit|clarif[iy]|compar|complet|conclud|confirm|connect"
    "|consider|"
    "contain|correct|cover|defin|deliver|demonstrat|describ|detail|determin|differentiat|direct|discourag|discuss"
    "|distinguish|"
    "document|draw|elaborat|emphasi[sz]|employ|encourag|end|engag|ensur|evaluat|exclud|explain|explor|express"
    "|fail|follow|"
    "foster|generat|giv|guid|help|highlight|identif[iy]|illustrat|improv|includ|incorporat|indicat|inform"
    "|integrat|introduc|"
    "investigat|justif[iy]|link|list|maintain|mention|mitigat|name|note|offer|organi[sz]|outlin|point|present|preserv|"
    "prevent|prioriti[sz]|propos|provid|quantif[iy]|question|rais|recogni[sz]|recommend|redirect|reduc|refer"
    "|reflect|refrain|relat|"
    "remain|remind|repeat|rephras|replac|report|request|respect|respond|return|review|revis|seek|select|separat"
    "|shar|show|"
    "specif[iy]|stat|stress|structur|suggest|summari[sz]|support|synthesi[sz]|tailor|take|tell|train|translat|try"
    "|tr[iy]|"
    "understand|updat|use|us|utili[sz]|valid|verif[iy]|warn|weav|writ"
)
_AUXILIARIES = "is|are|was|were|has|have|can|could|may|must|should|does|do|will"
_VERB = rf"(?:(?:{_VERBS})(?:e|es|s|ies|y|ing|ed|ting|ning)?|{_AUXILIARIES})\b"
_NEXT_VERB = re.compile(
    rf"(?:,? and|,? while|, but| but also|; and|;|,? as well as|, then|,? yet) (?!can be used)(?:it |they |the \w+ )?"
    rf"(?:also |then |still |further |clearly |at least |\w+ly )*(?:{_VERB})"
    r"|,? and (?:also )?that\b|, then the \w+",
    re.I,
)
_BUT_NOT = re.compile(r",? but (?:does|do|did|is|are) not\b.*|,? without\b.*|,? although\b.*|,? despite\b.*", re.I)
_CONDITION = re.compile(
    r"\b(?:if|when|whether|unless|in case|once|after|before|until|given|in the absence of)\b[^.;]*", re.I
)
_ASIDE = re.compile(
    r"\b(?:where|wherein|which|whose)\b[^.;]*|,? to (?:enhance|improve|ensure|facilitate|guide|aid|help|make"
    r"|minimi[sz]e|allow|draw)\b[^.;]*",
    re.I,
)
_NOT_ONLY = re.compile(
    r"\bnot (?:only|just|merely)\b.*\bbut\b|\bboth\b.*\band\b|\ball (?:two|three|four|five|six|seven|\d)\b", re.I | re.S
)
_IDIOM = re.compile(
    r"\b(?:black and white|trial and error|supply and demand|pros and cons|cause and effect|terms and conditions"
    r"|back and forth|research and development|question and answer|safe and sound|more and more|again and again)\b",
    re.I,
)
_STEPS = re.compile(r"\bstep 1\b.*\bstep 2\b|(?:^|\n)\s*(?:[-*•]|\d[.)])\s.*\n\s*(?:[-*•]|\d[.)])\s", re.I | re.S)
_LIST = re.compile(r"[\w’'-]+(?: [\w’'/-]+){0,7}, (?:[\w’'/-]+(?: [\w’'/-]+){0,9}, )*(?:and|as well as|plus) ", re.I)
_PAIR_OBJECT = re.compile(
    r"\b(?:defin\w+|describ\w+|discuss\w*|explain\w*|mention\w*|provid\w+|list\w*|includ\w+|nam\w+|cover\w*|address\w*|"
    r"analy[sz]\w+|identif\w+|summari[sz]\w+|evaluat\w+|assess\w+|highlight\w*|present\w*|stat\w+|specif\w+"
    r"|giv\w+|ask\w*)\b"
    r"(?! that)(?: (?!(?:to|for|that|which|who|between|in|on|by)\b)[\w’'/-]+){1,6}(?<! clear)(?<! short)(?<!"
    r" safe)(?<! safest)(?<! correct)(?<! brief)"
    r"(?<! simple) and (?!so\b|its\b|their\b|other\b|concise\b)(?:[\w’'/-]+ ){0,2}[\w’'/-]+",
    re.I,
)


@rule(
    "two-questions",
    "warning",
    why="A judge gives one verdict. When a completion meets one half, either verdict is wrong, judges disagree, and the"
    " reward does not say which half is missing.",
    fix="Write one criterion for each thing, and divide the weight among them.",
    bad="Names the cause of the fever and recommends a treatment. (weight 6)",
    good="Names the cause of the fever. (weight 3)  Recommends a treatment. (weight 3)",
)
def two_questions(subject: Subject) -> Iterator[LintHit]:
    """Find criteria that ask for two or more things that a completion can meet one without the other."""
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


_SUBJECT = (
    r"^\W*(?:(?:the|this|a|an) )?(?:(?:model |assistant'?s? )?(?:response|answer|completion|report|text|essay"
    r"|output|assistant|model|summary)s? )?(?:should |must |does )?(?:be |is |are )?"
)
_FAULT = re.compile(
    _SUBJECT + r"(?:fail(?:s|ed|ing)? to\b|omits?\b|neglects?\b|overlooks?\b|lacks?\b|ignores?\b|misses\b|forgets?\b"
    r"|incorrect(?:ly)?\b|"
    r"wrong(?:ly)?\b|inaccurate(?:ly)?\b|falsely\b|inappropriate(?:ly)?\b|unnecessarily\b|erroneous(?:ly)?\b|"
    r"misleading(?:ly)?\b|mis(?:states|represents|interprets|leads|identifies|diagnoses|attributes|quotes)\b|"
    r"overstates\b|exaggerates\b|overcomplicates\b|fabricates\b|hallucinates\b|invents\b|contradicts\b|"
    r"(?:overly|excessively|too|unnecessarily|needlessly) \w+)"
    r"|\b(?:contains?|includes?|provides?|gives?|makes?|has|uses?|offers?|presents?|states?|adds?|generates?) "
    r"(?:(?:an?|some|any|the|several|many) )?(?:\w+ly )?(?:incorrect|inaccurate|wrong|false|fabricated|hallucinated|"
    r"misleading|harmful|dangerous|unsafe|irrelevant|redundant|repetitive|too (?:many|much|long)|unnecessary"
    r"|unneeded|excessive|"
    r"overcomplicated|outdated|unsupported|unnecessarily|verbose|long, redundant)\b"
    r"|\bis (?:too|overly|somewhat|excessively) (?:long|short|lengthy|verbose|vague|general|repetitive|technical"
    r"|complex)"
    r"|\bin an? (?:overly |too )?(?:verbose|confusing|misleading|alarming|condescending|rude) (?:manner|way|tone)"
    r"|\b(?:that|which) (?:is|are) too (?:long|short|verbose|vague|technical)",
    re.I,
)
_VIRTUE = re.compile(
    _SUBJECT + r"(?:correct(?:ly)?\b|accurate(?:ly)?\b|appropriate(?:ly)?\b|clear(?:ly)?\b|properly\b|rightly\b"
    r"|concise(?:ly)?\b|brief and concise|"
    r"succinct(?:ly)?\b|hedges appropriately\b|keeps the \w+ (?:brief|short|concise|clear)\b|avoids?\b"
    r"|refrains? from\b|free of\b|helpful(?:ly)?\b|thorough(?:ly)?\b|effectively\b)"
    r"|^\W*(?:the (?:response|answer) )?(?:provides?|gives?|offers?|contains?|includes?|has|uses?|keeps?|hedges"
    r"|organi[sz]es) "
    r"(?:(?:an?|the|its|\w+) )?(?:\w+ly )?(?:\w+ and )?(?:correct|accurate|appropriate(?:ly)?|clear|concise|brief"
    r"|succinct|helpful|"
    r"reliable|no (?:\w+ly )?(?:incorrect|inaccurate|false|factual))\b",
    re.I,
)
_NEGATED = re.compile(
    r"\b(?:without|fails?|failing|lacks?|does not|do not|instead of|rather than|wrong\w*|incorrect\w*|inaccura\w+|"
    r"but|too|overly|excessive\w*|unnecessar\w+|inappropriate\w*|harm\w*|despite|although|even though)\b",
    re.I,
)
_MIRROR = re.compile(r"^\W*(?:correctly|accurately|appropriately|clearly|properly|avoids?|refrains?)\b", re.I)
_FAULT_NEXT = re.compile(r"\s*(?:mis\w+|fails?|omits?|ignores?|wrong\w*|incorrect\w*|inaccurate\w*|does not)\b", re.I)
_ABSENCE = re.compile(
    _SUBJECT
    + r"(?:avoids?\b|avoiding\b|refrains? from\b|abstains? from\b|free (?:of|from)\b|(?:does|do|did|should|must"
    r"|is|are|has|have|contains?|"
    r"includes?|makes?|uses?|gives?)? ?(?:not|no|never)\b|contains? no\b|has no\b|doesn't\b|strictly confined\b"
    r"|without\b)",
    re.I,
)
_ALSO_POSITIVE = re.compile(
    r"\b(?:and|but|while|;|instead)\b[^.]{0,20}\b(?:also |instead )?(?:advis|explain|recommend|mention|provid"
    r"|suggest|refer|includ|"
    r"stat|focus|offer|redirect|use|giv)\w*|\bnot only\b|\b(?:not|never) (?:fail|omit|miss|neglect|lack|forget|un\w+)",
    re.I,
)
_PROTOCOL = re.compile(r"\bif (?:yes|no|not|present|absent)\b,? (?:then )?(?:it )?(?:fail|pass)", re.I)
_DOUBLE = re.compile(
    r"(?<!\bif )\b(not|never|without|n't)\s+(?:\w+ly )?(?:to )?(fail(?:s|ed|ing)?(?: to)?|omit(?:s|ting)?|neglect(?:s"
    r"|ing)?(?: to)?|miss(?:es|ing)?|"
    r"lack(?:s|ing)?|forget(?:s|ting)?(?: to)?|ignor(?:e|ing)|overlook(?:ing)?|leav(?:e|ing) out|leav(?:e|ing) \w+ out|"
    r"avoid(?:ing)?|refrain(?:ing)?(?: from)?|exclud(?:e|ing)|un(?:clear|true|helpful|safe|supported|related"
    r"|available|common)|"
    r"without|in(?:correct|accurate|complete|appropriate|consistent)|im(?:possible|plausible))\b",
    re.I,
)
_MODAL_FAIL = re.compile(
    r"\b(should|must|shall|may|can|will|would|does|do|did) (?:not|never) (?:fail|neglect|forget|omit) to\b", re.I
)


@rule(
    "sign",
    "error",
    why="A positive weight on a fault pays for the fault; a negative one on a virtue punishes it. A policy learns"
    " exactly that.",
    fix="Change the sign of the weight, or turn the wording around.",
    bad="Fails to mention the dose. (weight 5)",
    good="Fails to mention the dose. (weight -5)  or  Mentions the dose. (weight 5)",
)
def sign(subject: Subject) -> Iterator[LintHit]:
    """Find a positive weight on a fault, and a negative one on a virtue."""
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


@rule(
    "absence",
    "info",
    why="An empty completion leaves everything out. A positive weight on an absence is paid to completions that say"
    " nothing, and"
    " raises the reward of all the others alike.",
    fix="Make it a pitfall: name the fault, with a negative weight.",
    bad="Does not recommend antibiotics. (weight 5)",
    good="Recommends antibiotics. (weight -5)",
)
def absence(subject: Subject) -> Iterator[LintHit]:
    """Find positive weights that are earned by leaving something out."""
    for criterion in subject.judged:
        if criterion.weight > 0 and (found := _only_absence(criterion)):
            yield LintHit(criterion, f"an empty text meets “{_short(found)}…”")


def _only_absence(criterion: Criterion) -> str:
    text = requirement(criterion.text)
    found = _ABSENCE.match(text)
    return found[0] if found and not _ALSO_POSITIVE.search(text) else ""


@rule(
    "double-negation",
    "warning",
    why="Two negations that cancel each other are read wrongly, by people and by models.",
    fix="Say what the completion must do.",
    bad="The answer should not fail to name the dose.",
    good="The answer should name the dose.",
)
def double_negation(subject: Subject) -> Iterator[LintHit]:
    """Find two negations that cancel each other."""
    for criterion in subject.judged:
        if found := _DOUBLE.search(requirement(criterion.text)):
            yield LintHit(criterion, f"“{_short(found[0])}” negates twice")


def _short(text: str) -> str:
    return " ".join(text.split()).strip(" .,:;")[:60]


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


RUN = 12
"""Words in a row of a reference that are no chance in a prompt, if they are half of it."""
SHORTEST = 3
"""Characters of a whole reference that is looked for as it is."""
_ANSWERS_WORD = re.compile(r"\w+(?:[.,]\d+)*")
_ANSWER = re.compile(
    r"\b(?:(?:final|correct|right) answer(?: is| should be|:)|answer is|concludes that (?:the answer is|it is)"
    r"|arrives at(?: the answer)?|"
    r"gives the (?:result|answer)|result is|equals)\s*:?\s*[\"“']?([^\"”'\n]{1,80}?)[\"”']?\s*(?:\.|$|\()",
    re.I,
)
_COPYING = re.compile(
    r"\b(?:summar|translat|paraphras|rewrit|rephras|proofread|correct the|edit|extract|quote|revise|repeat"
    r"|classif|choose|"
    r"which of|options?|select|following (?:text|passage|code|article)|given (?:text|passage|code))",
    re.I,
)


@rule(
    "leaked-answer",
    "error",
    why="A policy that copies the prompt gets the reward, and the judge cannot tell a completion from an echo.",
    fix="Take the answer out of the prompt, or ask for something that the prompt does not say.",
    bad="Prompt: “What is 17 · 23? (It is 391.)”  Criterion: The final answer is 391.",
    good="Prompt: “What is 17 · 23?”  Criterion: The final answer is 391.",
)
def leaked_answer(subject: Subject) -> Iterator[LintHit]:
    """Find references and answers that the prompt contains."""
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
