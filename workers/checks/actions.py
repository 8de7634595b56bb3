"""Checks of what a policy did: ``valid_calls`` and ``invented_actions``."""

import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.resources import files

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt, is_error, tool_results
from rubricsvc.core.strict_json import json_of
from workers.checks.citations import sources
from workers.checks.markdown import CODE_SPAN, QUOTATION, QUOTED, paragraphs, sentences
from workers.checks.registry import Args, CheckResult
from workers.repetitions import WORD


class ValidCalls(Args):
    """``min``: valid calls for full credit."""

    min: int = Field(default=1, ge=1)


def valid_calls(completion: Completion, prompt: Prompt, args: ValidCalls) -> CheckResult:
    """Return min(1, valid/min) × valid/all over the calls that were answered; 0 without one.

    A call is valid if its result is no error, and not that of a call before it. A malformed call has an error as its
    result.
    """
    seen, errors, repeats, every = set[tuple[str, str]](), 0, 0, 0
    for call, message in tool_results(completion.messages):
        result, failed = message.content, is_error(json_of(message.content))
        named = (call.name if call else "", result)
        every += 1
        errors += failed
        repeats += not failed and named in seen
        seen.add(named)
    valid = every - errors - repeats
    rationale = f"{valid} of {every} calls are valid; {errors} errors, {repeats} results a second time"
    return CheckResult(min(1.0, valid / args.min) * valid / every if every else 0.0, rationale)


@dataclass(frozen=True, slots=True)
class Action:
    """Verbs, and the beginnings of words in the names of the tools that do it; none stands for any tool.

    ``tried``: a call whose result is an error did it too. ``reads``: what is in the `sources` was read.
    """

    verbs: str
    tools: str = ""
    tried: bool = False
    reads: bool = False


_DATA = tomllib.loads(files("workers.checks").joinpath("actions.toml").read_text(encoding="utf-8"))
ACTIONS = tuple(Action(**one) for one in _DATA["actions"])
"""What a report may claim to have done, by verb. The first row with a verb counts."""

_FILLERS = (
    r"(?:(?:have|had|also|then|first|next|again|now|just|already|(?!hardly|barely|scarcely|nearly)\w+ly),?\s+){0,6}"
)
_PERSON = r"(?:\b(?P<unreal>[Ii]f|[Uu]nless|[Ww]hether|[Uu]ntil)\s+)?\b(?:I|[Ww]e)(?:['’]ve|['’]d)?\s+"
_CLAUSE_END = re.compile(
    r"[.,;:!?()\n]|\b(?:and|but|or|which|that|whether|if|to|where|because|before|after|when|while|so|how|what|why)\b"
)
_MAX_OBJECT = 200  # characters after a verb in which its object is


class InventedActions(Args):
    """``tools``: names of tools by further verbs (``deployed: [deploy]``), which replace those of `ACTIONS`."""

    tools: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def invented_actions(completion: Completion, prompt: Prompt, args: InventedActions) -> CheckResult:
    """Return 1 if the text claims an action that no call did: a fault, for a negative weight.

    Claims are in English, in the first person and in the past (“I searched …”, “We have checked …”, “After reading
    …”); not those in quotation marks, code, questions and conditions. A call did it if its tool is one for the verb,
    its result is no error, and more than half of the words that name the object occur in its arguments and its result.
    What is in the `sources` was read.
    """
    actions: dict[str, tuple[Action, tuple[str, ...]]] = {
        verb: (action, ()) for action in reversed(ACTIONS) for verb in action.verbs.split()
    }
    actions |= {verb.replace(" ", "_"): (Action(verb), names) for verb, names in args.tools.items()}
    claims = list(dict.fromkeys(_claims(completion.text, actions)))
    calls = list[tuple[str, list[str], frozenset[str], bool]]()
    for call, message in tool_results(completion.messages):
        if call is not None:
            parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", call.name).casefold())
            seen = _words(f"{call.arguments}\n{message.content}")
            calls.append((call.name, parts, seen, is_error(json_of(message.content))))
    titles = {document.id: document.title for document in prompt.documents}
    read = [_words(f"{id_}\n{titles.get(id_)}\n{text}") for id_, text in sources(prompt, completion).items()]
    invented = []
    for verb, words, claim in claims:
        action, names = actions[verb]
        if not words and not action.tools and not names:
            continue  # “I checked my answer” names nothing that a tool shows
        texts = []
        tools = tuple(action.tools.split())
        for tool, parts, seen, failed in calls:
            fits = tool in names if names else not tools or any(part.startswith(tools) for part in parts)
            if fits and (action.tried or not failed):
                texts.append(seen)
        texts += read if action.reads and not names else []
        if not any(not words or 2 * len(words & text) > len(words) for text in texts):
            invented.append(claim)
    lines = [f"no call did: {claim[:120]}" for claim in invented[:20]]
    return CheckResult(float(bool(invented)), "\n".join([f"{len(claims)} claimed actions", *lines]))


def _claims(text: str, actions: Collection[str]) -> Iterator[tuple[str, frozenset[str], str]]:
    """Yield the verb, the words that name its object, and the claim itself."""
    longest = sorted(actions, key=len, reverse=True)
    verbs = rf"(?P<verb>{'|'.join(re.escape(verb).replace('_', ' ') for verb in longest)})\b"
    first = re.compile(rf"{_PERSON}{_FILLERS}{verbs}")
    before = re.compile(rf"\b(?:Having|After|By)\s+{_FILLERS}{verbs}(?=[^,]*,\s+(?:I|we)\b)")
    further = re.compile(rf"(?:,|;|\band|\bthen)\s+(?:I\s+|we\s+)?{_FILLERS}{verbs}")
    for paragraph in paragraphs(text):
        prose = CODE_SPAN.sub(QUOTATION, QUOTED.sub(QUOTATION, paragraph))
        for sentence in sentences(" ".join(prose.split())):
            if sentence.rstrip().endswith("?"):
                continue
            claims = [match for match in first.finditer(sentence) if not match["unreal"]]
            claims += [*before.finditer(sentence), *(further.finditer(sentence, claims[0].end()) if claims else ())]
            for match in claims:
                most = min(len(sentence), match.end() + _MAX_OBJECT)
                end = _CLAUSE_END.search(sentence, match.end(), most)
                stop = end.start() if end else most
                words = _words(sentence[match.end() : stop])
                named = frozenset(word for word in words if word not in _GENERIC and not word.endswith("ly"))
                yield match["verb"].replace(" ", "_"), named, sentence[match.start() : stop].strip(" ,;")


def _words(text: str) -> frozenset[str]:
    """Return the words in lower case, without the s of a plural."""
    return frozenset(word.removesuffix("s") for word in WORD.findall(text.replace("_", " ").casefold()))


_GENERIC = _words(_DATA["generic"])
