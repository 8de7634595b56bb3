"""Criteria that ask two things at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rubricsvc.lint.registry import LintHit, Subject, rule
from rubricsvc.lint.text import MOST_READ, demands, requirement, title_of

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
