"""Text of documents that addresses a model, recognized by patterns, so that it can be withheld from a generator.

It is a screen, not a proof: it knows common forms, mostly in English, and no false statement. What it takes for an
instruction by mistake costs the generator a paragraph; `docs/generating.md` has the rates of both.
"""

import re
import unicodedata

from rubricsvc.core.untrusted import clean

_MODEL = (
    r"(?:AI|LLMs?|GPT|(?:large )?language models?|chat ?bots?|assistant|AI (?:readers?|systems?|models?)"
    r"|rubric[- ](?:generators?|writers?|authors?))"
)
_GRADER = r"(?:graders?|evaluators?|assessors?|examiners?|markers|rubric[- ](?:generators?|writers?|authors?))"
_ORDERS = (
    r"(?:instructions?|prompts?|guidelines|directions|questions?|rubrics?|criteri(?:on|a)|system message"
    r"|(?:the|all) above)"
)
_RUBRIC = r"(?:rubrics?|criteri(?:on|a))"
_ANSWERS = r"(?:answers?|responses?|completions?|repl(?:y|ies))"
_MUST = r"(?:must|should|shall|has to|have to|needs? to)"
_PATTERNS = (
    # orders that replace the task
    rf"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{{0,60}}\b{_ORDERS}\b",
    r"\b(?:new|additional|updated|hidden|secret) (?:instructions?|task|system prompt)s?\b",
    r"\byour (?:new |only |real )?(?:instructions?|task|role) (?:is|are)\b",
    # orders about the rubric
    rf"\b(?:add|include|insert|write|create|append|output|generate|invent)\b[^.\n]{{0,60}}\b{_RUBRIC}\b",
    rf"\b(?:the|a|each|every|your) {_RUBRIC}\b[^.\n]{{0,60}}\b(?:{_MUST}|rewards?|awards?|about|names|mentions)\b",
    rf"\b(?:award|reward|give|grant|assign)s?\b[^.\n]{{0,40}}"
    rf"\b(?:(?:full|extra|maximum) (?:marks?|points?|scores?|credit)|{_ANSWERS}|{_RUBRIC})\b",
    rf"\b(?:good|correct|best|ideal|any|every|all|{_ANSWERS}[^.\n]{{0,10}},) {_ANSWERS}\b[^.\n]{{0,40}}\b{_MUST}\b",
    rf"\b{_ANSWERS} {_MUST} (?:mention|name|praise|recommend|contain|say|state)\b",
    rf"\b{_ANSWERS}\b[^.\n]{{0,40}}\b(?:without|leaves? out|omits?|lacks?|do(?:es)? not mention)\b[^.\n]{{0,60}}"
    r"\b(?:wrong|incorrect|incomplete|bad|fails?|zero)\b",
    # addressed to a model or a grader
    rf"\b(?:notes?|message|instructions?|attention|for|to|dear|hey)\b[^.\n]{{0,20}}\b{_MODEL}\b[^.\n]{{0,40}}[:,!]",
    rf"\b(?:if )?you(?:'re| are)\b[^.\n]{{0,20}}\b{_MODEL}\b",
    rf"\b{_GRADER}\b[^.\n]{{0,60}}\b(?:{_MUST}|will|reward|deduct|credit|look for|expects?)\b",
    # rubrics, roles and marks as they look to a model
    r"[\"']criteria[\"']\s*:",
    r"[\"']weight[\"']\s*:\s*-?\d",
    r"^\s*\d{1,2}[.)]\s+\[[+-]?\d{1,3}(?:\.\d+)?\]\s",
    r"^\s*(?:system|assistant)\s*:",
    r"</?(?:document|question|reference|completion|result|system|instructions?)s?(?:-[0-9a-f]+)?>",
    r"\b(?:begin|end) (?:of )?(?:the )?(?:documents?|prompt|instructions?|untrusted text|system message)\b",
    # the same in other languages
    r"\b(?:ignorier\w*|missachte\w*)\b[^.\n]{0,40}\b(?:anweisung|vorgabe|regel)\w*",
    r"\bkriteri(?:um|en)\b[^.\n]{0,60}\b(?:hinzu\w*|beloh?n\w*)",
)
_ADDRESS = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS), re.IGNORECASE | re.MULTILINE)


def addresses_model(text: str) -> str | None:
    """Return the words by which a text seems to instruct a model; None if it does not.

    Full-width, mathematical and other variants of letters count as the plain ones, hidden characters are read too, and
    so is a token of a chat format.
    """
    cleaned = clean(text)
    if "role tokens" in cleaned.note:
        return "a role token"
    shown = "".join(chr(ord(one) - 0xE0000) if "\U000e0020" <= one <= "\U000e007e" else one for one in text)  # tags
    both = (unicodedata.normalize("NFKC", one) for one in (cleaned.text, shown))
    found = next(filter(None, map(_ADDRESS.search, both)), None)
    return " ".join(found[0].split()) if found else None
