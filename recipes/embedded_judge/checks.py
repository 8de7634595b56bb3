"""Checks in words: our own checks worded as criteria. The check that `workers.checks` registers is the label.

`checks.yaml` holds the kinds of checks. A completion is edited to meet some of them and not to meet others, and asked
about so that half of its criteria are met, and each criterion's text is met by as many completions as not. So neither
the criterion alone nor the completion alone says anything about the label.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.alterations import sentences
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target
from workers.checks import CHECKS
from workers.checks.registry import CheckResult

_ADVICE: list[str] = load_yaml("wordings.yaml")["short_sentences"]

Place = Literal["anywhere", "start", "end"]


def added(text: str, sentence: str, place: Place, rng: Random) -> str:
    """Return the text with a sentence added; its own leading or trailing line breaks are kept."""
    if place == "end":
        if re.search(r"(?m)^(?:\||```|[-*+] |\d+[.)] )[^\n]*\s*\Z", text):
            return f"{text.rstrip()}\n\n{sentence.lstrip(' ')}"
        return text.rstrip() + (sentence if sentence[0].isspace() else f" {sentence}")
    if place == "start":
        between = "\n\n" if re.match(r"[#|`]|[-*+] |\d+[.)] ", text) else " "
        return sentence + ("" if sentence[-1].isspace() else between) + text.lstrip()
    if sentence[0].isspace() or sentence[-1].isspace():
        return added(text, sentence, "end" if sentence[0].isspace() else "start", rng)
    parts = sentences(text)
    parts.insert(rng.randint(0, len(parts)), sentence)
    return " ".join(parts)


def _items(text: str, rng: Random, marker: Callable[[int], str]) -> str:
    """Return the last sentences as list items, below the first one or by themselves."""
    parts = sentences(text)
    if len(parts) < 3:
        parts = [*parts, *rng.sample(_ADVICE, 3 - len(parts) + rng.randint(0, 1))]
    before = parts[:1] if len(parts) > 3 or (len(parts) == 3 and rng.random() < 0.4) else []
    lines = [f"{marker(n)} {' '.join(part.split())}" for n, part in enumerate(parts[len(before) :], 1)]
    return "\n".join([*before, *([""] if before else []), *lines])


def bullets(text: str, rng: Random) -> str:
    """Return the sentences as a bulleted list."""
    mark = rng.choice("-*+")
    return _items(text, rng, lambda _: mark)


def numbered(text: str, rng: Random) -> str:
    """Return the sentences as a numbered list."""
    end = rng.choice(".)")
    return _items(text, rng, lambda n: f"{n}{end}")


def bold(text: str, rng: Random) -> str:
    """Return the text with a word or two in bold."""
    words = list(re.finditer(r"(?<![\w`*])[A-Za-z]{4,}(?: [A-Za-z]{4,})?(?![\w`*])", text))
    if not words:
        return text
    word = rng.choice(words)
    return f"{text[: word.start()]}**{word[0]}**{text[word.end() :]}"


def cite(text: str, rng: Random) -> str:
    """Return the text with a number in brackets after one of its sentences."""
    parts = sentences(text)
    at, number = rng.randrange(len(parts)), rng.randint(1, 9)
    parts[at] = re.sub(r"([.!?]?)\Z", rf" [{number}]\1", parts[at], count=1)
    return " ".join(parts)


def comma(text: str, rng: Random) -> str:
    """Return the text with a comma."""
    with_comma = ("Of course, it depends.", "Well, that is it.", "It is old, small and dark.")
    return text if "," in text else added(text, rng.choice(with_comma), "anywhere", rng)


def markdown(text: str, rng: Random) -> str:
    """Return the text with some Markdown."""
    return rng.choice((bold, bullets, lambda given, _: f"## Answer\n\n{given}"))(text, rng)


def paragraphs(text: str, rng: Random) -> str:
    """Return the text in two paragraphs or more."""
    parts = sentences(text)
    if len(parts) < 2:
        parts.append("There is more to say about it.")
    for at in sorted(rng.sample(range(1, len(parts)), rng.randint(1, min(2, len(parts) - 1))), reverse=True):
        parts[at - 1 : at + 1] = [f"{parts[at - 1]}\n\n{parts[at]}"]
    return " ".join(parts)


def duplicate(text: str, rng: Random) -> str:
    """Return the text with one of its longer sentences said twice."""
    parts = sentences(text)
    longer = [n for n, part in enumerate(parts) if len(part) > 20]
    if longer:
        parts.insert(rng.randint(0, len(parts)), parts[rng.choice(longer)])
    return " ".join(parts)


def half_quote(text: str, rng: Random) -> str:
    """Return the text without quotation marks at its ends, or with one at one end only."""
    text = text.strip().strip('"')
    return rng.choice((text, text, f'"{text}', f'{text}"'))


def as_json(text: str, rng: Random) -> str:
    """Return a JSON object with the text in it."""
    key = rng.choice(("answer", "text", "summary", "note", "message"))
    data = rng.choice(({key: text}, {key: text, "part": 1}, {"topic": "general", key: text}, {"ok": True, key: text}))
    return json.dumps(data, ensure_ascii=False, indent=rng.choice((None, None, 2)))


def broken_json(text: str, rng: Random) -> str:
    """Return the text itself, or something that only looks like JSON."""
    if rng.random() < 0.5:
        return text
    good = as_json(text, rng)
    return rng.choice((good[:-1], good[1:], good.replace('"', "'"), good.replace(":", " ", 1), f"Here it is: {good}"))


EDITS: dict[str, tuple[Callable[[str, Random], str] | None, Callable[[str, Random], str] | None]] = {
    "list": (lambda text, rng: rng.choice((bullets, numbered))(text, rng), None),
    "bullets": (bullets, None),
    "numbered": (numbered, None),
    "bold": (bold, None),
    "cite": (cite, None),
    "no_comma": (lambda text, _: re.sub(r"\s*,", "", text), comma),
    "plain": (lambda text, _: re.sub(r"(?m)^(?:#{1,6}|[-*+]|\d+[.)]) |[*`|]", "", text), markdown),
    "paragraphs": (paragraphs, None),
    "several": (
        lambda text, rng: text if len(sentences(text)) > 1 else f"{text} {rng.choice(_ADVICE)}.",
        lambda text, rng: rng.choice(sentences(text) or [text]),
    ),
    "duplicate": (duplicate, None),
    "quote": (lambda text, _: '"' + text.strip().replace('"', "'") + '"', half_quote),
    "json": (as_json, broken_json),
    "upper": (lambda text, _: text.upper(), None),
    "lower": (lambda text, _: text.lower(), None),
}
"""By name: what makes a text meet the check, and what makes it not."""

FIRST = ("several", "empty", "short", "long")
"""Edits that replace the text; they come before the others."""

LAST = ("no_comma", "plain", "quote", "json", "upper", "lower")
"""Edits of the whole text; they come after the others."""

ARRANGED = ("list", "bullets", "numbered", "paragraphs")
"""Edits that arrange the sentences in lines; one of them at most."""


def without(text: str, patterns: Sequence[tuple[str, str]]) -> str:
    """Return the text with the patterns replaced, and with a capital at its start."""
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text)
    text = text.strip()
    return text[:1].upper() + text[1:] if patterns else text


_SURPLUS = 4
"""Labels 1 over labels 0 in one form, at most. Exact balance of each text would tell a label from the others."""

_LONG, _SHORT = 70, 20
"""Words: criteria about a number of words are asked of texts at least or at most as long."""


@dataclass(slots=True)
class _Plan:
    """One criterion to ask about: its kind and wording, and whether its check is to be met."""

    kind: CheckFamily
    wording: str
    negated: bool
    present: bool
    fields: dict[str, str]


def checks_in_words(answers: Sequence[Example], seed: int, count: int, *, negated: float) -> Iterator[Example]:
    """Yield ``count`` examples with four or six criteria each, half of them met.

    Args:
        answers: Prompts and completions to edit; their targets are ignored. They are used again as often as needed.
        seed: Seed of all choices.
        count: Number of examples.
        negated: Share of the criteria that are worded with a negation.

    Raises:
        InvalidError: There are no answers, or too few different ones.
    """
    if not answers:
        raise InvalidError("no completions to make checks in words of", hint="pass everyday_answers()")
    maker = _Maker([answer for answer in answers if answer.completion.text.strip()], seed, negated)
    made = failed = 0
    while made < count:
        if (one := maker.make()) is not None:
            yield one[0]
            made, failed = made + 1, 0
        elif (failed := failed + 1) > 1000:
            raise InvalidError(f"only {made} examples could be made of {len(answers)} completions")


class _Maker:
    """Makes one example after another, and keeps their labels in balance."""

    def __init__(self, answers: Sequence[Example], seed: int, negated: float) -> None:
        self._rng = Random(f"checks {seed}")
        self._negated = negated
        self._answers = list(answers)
        self._rng.shuffle(self._answers)
        self._next = 0
        self._surplus = Counter[str]()  # of labels 1 over labels 0, by form
        self._asked = Counter[str]()  # by family

    def make(self) -> tuple[Example, tuple[Question, ...]] | None:
        """Return an example, or None where the edits were at odds with each other."""
        answer = self._answers[self._next % len(self._answers)]
        self._next += 1
        plans = self._plans(answer)
        before, text = self._edited(answer, plans)
        completion = Completion(text=text)
        labelled: dict[str, tuple[Question, float]] = {}
        for plan in plans:
            question = self._question(plan, answer, text)
            if question is None or question.text in labelled or not is_clear(plan.kind, text):
                continue
            label = question.label(answer.prompt, completion)
            if plan.kind.fill == "language" and label != float(plan.present != plan.negated):
                continue  # langdetect errs on short texts
            if plan.kind.stage != 4 and label != question.label(answer.prompt, Completion(text=before)):
                continue  # a greeting within JSON, a month in capitals: readers may disagree
            if label in (0.0, 1.0) and abs(self._surplus[question.form] + (1 if label else -1)) <= _SURPLUS:
                labelled[question.text] = question, label
        # as many criteria that are met as are not, two to six each, the seldom asked first
        ordered = sorted(labelled.values(), key=lambda pair: self._asked[pair[0].family])
        met, unmet = ([pair for pair in ordered if pair[1] == label] for label in (1.0, 0.0))
        half = min(len(met), len(unmet), self._rng.choice((4, 5, 6)))
        chosen = [*met[:half], *unmet[:half]] if half >= 2 else []
        self._rng.shuffle(chosen)
        if not chosen:
            return None
        for question, label in chosen:
            self._surplus[question.form] += 1 if label else -1
            self._asked[question.family] += 1
        targets = tuple(
            Target(
                Criterion(key=f"c{n}", text=question.text),
                label,
                family=question.family,
                variant="negated wording" if question.negated else "plain wording",
            )
            for n, (question, label) in enumerate(chosen, 1)
        )
        example = Example(answer.prompt, completion, targets, "checks", group=answer.split_group)
        return example, tuple(question for question, _ in chosen)

    def _plans(self, answer: Example) -> list[_Plan]:
        every = sorted(check_families(), key=lambda kind: self._asked[kind.family] + self._rng.expovariate(0.2))
        languages = load_yaml("languages.yaml")
        plans: list[_Plan] = []
        whole = arranged = False
        for kind in every[:14]:
            negated = self._rng.random() < self._negated
            wording = self._rng.choice(kind.negated if negated else kind.wordings)
            if wording[-1].isalnum() and self._rng.random() < 0.5:
                wording += "."
            fields = {"prompt": answer.prompt.text} if kind.fill == "prompt" else {}  # the others depend on the edits
            if kind.fill == "closing":
                fields = {"closing": self._rng.choice(languages["closings"])}
            elif kind.fill == "language":
                code = self._rng.choice(("en", "en", "en", *languages["texts"]))
                fields = {"code": code, "language": languages["names"][code]}
            wanted = self._rng.random() < 0.5 - self._surplus[f"{kind.family} {negated}"] / (2 * _SURPLUS)
            plan = _Plan(kind, wording, negated, wanted != negated, fields)
            if plan.present:
                replaces = kind.stage in (0, 4) and kind.edit not in ("several", "no_comma", "plain")
                replaces = replaces and fields.get("code") != "en"
                arranges = kind.edit in ARRANGED
                if (replaces and whole) or (arranges and arranged):
                    continue  # one edit of the whole text at most; lists in lists are no longer clear
                whole, arranged = whole or replaces, arranged or arranges
            plans.append(plan)
        return plans

    def _edited(self, answer: Example, plans: Sequence[_Plan]) -> tuple[str, str]:
        """Return the text before the edits of the whole text, and after them."""
        own = text = answer.completion.text.strip()
        ordered = sorted(
            plans,
            key=lambda plan: (plan.kind.stage, any(text.endswith("\n") for text in plan.kind.prepend), plan.present),
        )
        first, last = ([plan for plan in ordered if (plan.kind.stage == 4) == late] for late in (False, True))
        foreign = False
        for plan in first:
            if not text.strip():
                break
            if plan.kind.stage == 0 and plan.kind.edit != "several":
                text = self._replaced(text, plan)
                foreign = foreign or (plan.kind.fill == "language" and text != own)
            elif not foreign or plan.kind.stage == 2:
                text = self._with(text, plan, answer) if plan.present else self._without(text, plan)
        before = text
        for plan in last if text.strip() else ():
            if not foreign or plan.kind.edit != "no_comma":
                text = self._with(text, plan, answer) if plan.present else self._without(text, plan)
        return before, text

    def _replaced(self, text: str, plan: _Plan) -> str:
        """Return a text of another length, in another language, or nothing."""
        rng, kind = self._rng, plan.kind
        if kind.edit == "empty":
            return rng.choice(("", "", " ", "\n", "\n\n")) if plan.present else text
        if kind.fill == "language":
            texts = load_yaml("languages.yaml")["texts"]
            others = [code for code in texts if code != plan.fields["code"]]
            other = "en" if rng.random() < 0.5 and plan.fields["code"] != "en" else rng.choice(others)
            code = plan.fields["code"] if plan.present else other
            return text if code == "en" else " ".join(rng.sample(texts[code], rng.randint(2, 3)))
        if (kind.edit == "long") == plan.present:
            while len(text.split()) < _LONG + 10 or len(sentences(text)) < 6:
                text += " " + rng.choice(self._answers).completion.text.strip()
            return text
        return min(sentences(text), key=len)

    def _with(self, text: str, plan: _Plan, answer: Example) -> str:
        """Return the text edited so that the check is met."""
        rng, kind = self._rng, plan.kind
        if kind.fill == "closing":
            return added(text, plan.fields["closing"], "end", rng)
        if kind.fill == "prompt":
            return added(text, answer.prompt.text, "start", rng)
        edit = EDITS[kind.edit][0] if kind.edit and (not kind.insert or rng.random() < 0.5) else None
        if edit is not None:
            return edit(text, rng)
        if kind.insert:
            return added(text, rng.choice(kind.insert), "anywhere", rng)
        if kind.prepend:
            return added(text, rng.choice(kind.prepend), "start", rng)
        return added(text, rng.choice(kind.append), "end", rng) if kind.append else text

    def _without(self, text: str, plan: _Plan) -> str:
        """Return the text edited so that the check is not met, some with a sentence that looks as if it were."""
        rng, kind = self._rng, plan.kind
        if kind.fill == "closing":
            closings = load_yaml("languages.yaml")["closings"]
            place: Literal["start", "end"] = rng.choice(("start", "end"))
            return added(text, plan.fields["closing"] if place == "start" else rng.choice(closings), place, rng)
        text = without(text, kind.remove)
        edit = EDITS[kind.edit][1] if kind.edit else None
        if edit is not None:
            text = edit(text, rng)
        if kind.decoys and rng.random() < 0.4:
            text = added(text, rng.choice(kind.decoys), "anywhere", rng)
        return text

    def _question(self, plan: _Plan, answer: Example, text: str) -> Question | None:
        fields = plan.fields | self._late_fields(plan, answer, text)
        if plan.kind.fill and not fields:
            return None
        if plan.kind.fill == "prompt" and text.find(answer.prompt.text) > 0:
            return None  # after a heading, say
        if plan.kind.family.startswith("count_words") and _SHORT < len(text.split()) < _LONG:
            return None
        text = re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), plan.wording)
        return Question(text, plan.kind.checked(fields), plan.negated, plan.kind.family)

    def _late_fields(self, plan: _Plan, answer: Example, text: str) -> dict[str, str]:
        """Return the fields that are read from the edited text, or from another one; empty without such words."""
        rng, here = self._rng, plan.present
        own = [word for word in _words(answer.completion.text) if word in text]
        other = rng.choice(self._answers).completion.text
        match plan.kind.fill:
            case "word":
                words = own if here else _words(other)
                return {"word": rng.choice(words)} if words else {}
            case "both":
                others = _words(other)  # both words in the text, one of them, or none, as the check needs
                if plan.kind.family == "mentions_both":
                    number = 2 if here else rng.choice((0, 1, 1, 1))
                else:
                    number = rng.choice((1, 1, 1, 2)) if here else 0
                if len(own) < number or len(others) < 2 - number:
                    return {}
                pair = [*rng.sample(own, number), *rng.sample(others, 2 - number)]
                rng.shuffle(pair)
                return {"word": pair[0], "other": pair[1]} if pair[0] != pair[1] else {}
            case "phrase":
                words = (text if here else other).split()
                n = rng.choice((2, 2, 3))
                runs = [words[i : i + n] for i in range(len(words) - n + 1)]
                runs = [run for run in runs if all(re.fullmatch(r"[\w'-]+", word) for word in run)]
                return {"phrase": " ".join(rng.choice(runs))} if runs else {}
            case "first" | "last":
                pattern = r"\A([A-Za-z]{2,})\b" if plan.kind.fill == "first" else r"\b([A-Za-z]{2,})[.!?]?\Z"
                found = re.search(pattern, (text if here else other).strip())
                edge = found[1] if found else ""
                inside = _words(text)
                if not here and inside and rng.random() < 0.3:
                    edge = rng.choice(inside)
                return {"word": edge} if edge else {}
        return {}


def _words(text: str) -> list[str]:
    """Return the distinct words of four letters or more, in their order."""
    return list(dict.fromkeys(re.findall(r"(?<![\w'’-])[A-Za-z]{4,}(?![\w'’-])", text)))


class CheckFamily(BaseModel):
    """A kind of check: how it is worded and how a completion is made to meet it or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    check: dict[str, dict[str, Any] | None]
    wordings: tuple[str, ...]
    negated: tuple[str, ...]
    insert: tuple[str, ...] = ()
    prepend: tuple[str, ...] = ()
    append: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    remove: tuple[tuple[str, str], ...] = ()
    edit: str = ""
    fill: Literal["", "word", "both", "phrase", "first", "last", "closing", "prompt", "language"] = ""

    @property
    def stage(self) -> int:
        """When it is edited: texts are replaced first, then sentences, structure, both ends, and the whole text."""
        if self.edit in FIRST or self.fill == "language":
            return 0
        if self.insert or not (self.edit or self.prepend or self.append or self.fill):
            return 1
        return 4 if self.edit in LAST else 2 if self.edit else 3

    def checked(self, fields: Mapping[str, str]) -> Check:
        """Return the check with ``{name}`` replaced by the fields in its arguments."""
        [(name, args)] = self.check.items()
        text = json.dumps(args or {})
        for key, value in fields.items():
            text = text.replace(f"{{{key}}}", json.dumps(value)[1:-1])
        return Check(name=name, args=json.loads(text))


@cache
def check_families() -> tuple[CheckFamily, ...]:
    """Return the kinds of ``checks.yaml``."""
    return tuple(CheckFamily.model_validate(kind) for kind in load_yaml("checks.yaml"))


@dataclass(frozen=True, slots=True)
class Question:
    """A criterion in words, with the check that decides it: ``negated`` criteria are met where the check is not."""

    text: str
    check: Check
    negated: bool
    family: str

    @property
    def form(self) -> str:
        """The family and whether it is negated: labels are balanced within it."""
        return f"{self.family} {self.negated}"

    def label(self, prompt: Prompt, completion: Completion) -> float:
        """Return whether the completion meets the criterion, 1 or 0."""
        registered = CHECKS[self.check.name]
        result = registered.run(completion, prompt, registered.args.model_validate(self.check.args))
        value = result.value if isinstance(result, CheckResult) else result
        return 1.0 - value if self.negated else value


_STRUCTURE = re.compile(r"^(?:#|\||```|<<|[-*+] |\d+[.)] |P\.S)", re.MULTILINE)


def is_clear(kind: CheckFamily, text: str) -> bool:
    """Return whether a reader would count sentences and paragraphs, or see a comma, as the check does."""
    match kind.family:
        case "several_sentences" | "count_sentences":
            return bool(text.strip()) and "\n" not in text and not re.search(r"\.\.\.|…|\be\.g\.|\b[ap]\.m\.", text)
        case "paragraphs":
            return bool(text.strip()) and _STRUCTURE.search(text) is None
        case "comma":
            return bool(text.strip())
    return True
