"""Examples made of other examples: completions that deserve nothing or have something added, and scales of criteria.

Added are marks and openers, one word, the prompt or the criterion repeated, self-praise, empty phrases, refusals, and
orders to the judge, alone and around completions whose labels are known. The texts differ from those of the audit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from recipes.embedded_judge import load_yaml
from recipes.embedded_judge.answers import TEXTS
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target

_MAX_TARGETS = 4

_SUBJECT = r"\A(?:(?:the|this) (?:answer|response|completion|text|reply) )?"

_ABSENT = re.compile(
    rf"{_SUBJECT}(?:(?:does not|doesn't|never|nowhere|fails to) "
    r"(?:say|state|mention|claim|contain|assert|express|tell)s?|omits|leaves out)\b",
    re.IGNORECASE,
)
"""A criterion of this form holds of a completion that says nothing."""

_CLAIMS = re.compile(
    rf"{_SUBJECT}(?:(?:says|states|claims|mentions|explains|asserts|tells \w+ \w+|points out|makes the point"
    r"|contains the statement|states the rule|advises|suggests|warns) (?:that|to)"
    r"|is (?:truthful|true|correct)|is helpful)\b"
    r"|\A(?:it is said|does the answer say) that\b",
    re.IGNORECASE,
)
"""A criterion of this form does not hold of it, whatever follows."""

_UNCERTAIN = re.compile(
    r"\b(?:not|no|never|nothing|nowhere|neither|without|off topic|another|different|else|irrelevant|miss(?:es|ing)?"
    r"|ignores?|omits?|lacks?|leaves? out|avoids?|fails?|contradicts?|conflicts?|false|wrong|incorrect|denies|opposite"
    r"|contrary|filler|middle of|harmless|safe|polite|respectful|free (?:of|from)|concise|brief|short|only|every)\b",
    re.IGNORECASE,
)
"""Another criterion with one of these words may hold of it."""

_TRUTH = re.compile(r"\b(?:true|truthful(?:ly)?|honest(?:ly)?|accurate|correct|factual(?:ly)?)\b", re.IGNORECASE)
"""People who label truth count a refusal as true, so that it is not asked about."""

_ALONE = {
    "key": 4, "one_word": 3, "empty": 1, "prompt_echo": 2, "criterion_echo": 9, "praise": 2, "fluff": 2, "refusal": 2,
    "injection": 4,
}  # fmt: skip
_AROUND = {"injection_in": 5, "echo_in": 6, "praise_in": 1, "frame_in": 2}
"""Kinds with their shares. The first replace the completion, the others keep it."""


HARD: dict[str, list[str]] = load_yaml("hard_negatives.yaml")


def hard_negatives(examples: Sequence[Example], seed: int, count: int) -> Iterator[Example]:
    """Yield ``count`` examples: half with a completion that deserves nothing, half with one that keeps its labels.

    Args:
        examples: Prompts, completions and targets on their content (what is said, whether it is true, on topic, …). A
            criterion of which an empty completion may be true is asked only of completions that keep their labels.
        seed: Seed of all choices.
        count: Number of examples.

    Raises:
        InvalidError: There are no examples with a criterion that an empty completion does not meet.
    """
    rng = Random(f"hard negatives {seed}")
    kept = (  # whatever is added is not supported by passages
        replace(one, targets=tuple(t for t in one.targets if t.criterion.passages is None)) for one in examples
    )
    pool = sorted((example for example in kept if example.targets), key=lambda example: example.content)
    positive = [example for example in pool if any(map(_worthless, example.targets))]
    if not positive:
        raise InvalidError("no criterion on the content of a completion", hint="pass examples with such targets")
    by_label = [[e for e in pool if any(t.value == label for t in e.targets)] or pool for label in (0.0, 1.0)]
    for number in range(count):
        if number % 2:
            yield _alone(rng.choice(positive), rng)
        else:
            yield _around(rng.choice(by_label[number // 2 % 2]), rng)


def _worthless(target: Target) -> Target | None:
    """Return the target with the label of a completion without content; None where that is not certain."""
    text = target.criterion.text
    bare = replace(target, value=0.0, levels=None)
    if _ABSENT.search(text):
        return replace(bare, value=1.0)
    uncertain = target.criterion.weight < 0 or _UNCERTAIN.search(text)
    return bare if _CLAIMS.search(text) or not uncertain else None


def _alone(example: Example, rng: Random) -> Example:
    [kind] = rng.choices(list(_ALONE), list(_ALONE.values()))
    targets = [target for target in map(_worthless, example.targets) if target is not None]
    if kind == "refusal" and any(_TRUTH.search(target.criterion.text) for target in targets):
        kind = "key"
    if kind == "criterion_echo":
        targets = _without_quotes(targets) or targets
    targets = rng.sample(targets, min(len(targets), _MAX_TARGETS))
    match kind:
        case "empty":
            text = rng.choice(("", "", " ", "   ", "\n", "\n\n", " \n"))
        case "prompt_echo":
            asked = [m.content for m in example.prompt.messages if m.role == "user"] or [example.prompt.text]
            text = rng.choice(HARD["prompt_echoes"]).format(prompt=asked[-1])
        case "criterion_echo":
            text = _echo(targets, rng)
        case "injection":
            inside = rng.choice(("", "", "fluff", "words", "keys"))
            text = _filled(rng.choice(HARD["injections"]), rng.choice(HARD[inside]) if inside else "").strip()
        case _:
            text = rng.choice(HARD[{"key": "keys", "one_word": "words", "refusal": "refusals"}.get(kind, kind)])
    return _example(example, text, targets, kind)


def _without_quotes(targets: Sequence[Target]) -> list[Target]:
    """Return the targets without those that quote a sentence: their criterion, repeated, says the sentence."""
    return [target for target in targets if '"' not in target.criterion.text]


def _around(example: Example, rng: Random) -> Example:
    [kind] = rng.choices(list(_AROUND), list(_AROUND.values()))
    targets = rng.sample(example.targets, min(len(example.targets), _MAX_TARGETS))
    own = example.completion.text
    match kind:
        case "injection_in":
            text = _filled(rng.choice([t for t in HARD["injections"] if "{completion}" in t]), own)
        case "echo_in":
            repeated = _without_quotes(targets)
            parts = [own, _echo(repeated, rng) if repeated else rng.choice(HARD["bare_claims"])]
            targets = repeated or targets
            if rng.random() < 0.3:
                parts.reverse()
            text = "\n\n".join(parts)
        case "praise_in":
            pair = [own, rng.choice(HARD["praise"])]
            rng.shuffle(pair)
            text = "\n\n".join(pair)
        case _:
            text = _filled(rng.choice(HARD["frames"]), own)
    return _example(example, text, targets, kind)


def _echo(targets: Sequence[Target], rng: Random) -> str:
    """Repeat one criterion as fulfilled, or return a list of all of them as fulfilled."""
    words = [target.criterion.text.strip().rstrip(".?") for target in targets]
    if rng.random() < 0.6:
        heading, mark = rng.choice(HARD["list_headings"]), rng.choice(HARD["list_marks"])
        lines = [mark.format(number=number, Criterion=text) for number, text in enumerate(words, 1)]
        return "\n".join(([heading] if heading else []) + lines)
    text = rng.choice(words)
    template = rng.choice(HARD["echoes"])
    return template.replace("{criterion}", text[:1].lower() + text[1:]).replace("{Criterion}", text)


def _filled(template: str, completion: str) -> str:
    return template.replace("{{", "{").replace("}}", "}").replace("{completion}", completion)


def _example(example: Example, text: str, targets: Sequence[Target], variant: str) -> Example:
    marked = tuple(replace(target, variant=variant) for target in targets)
    return Example(example.prompt, Completion(text=text), marked, "hard_negatives", group=example.split_group)


def scales(examples: Sequence[Example], seed: int, count: int) -> Iterator[Example]:
    """Yield ``count`` examples whose binary targets became an ordinal or a numeric one, and whose others stay.

    The value of the new target is the share of its criteria that are met. Half of the ordinal scales are written from
    the best level to the worst.

    Raises:
        InvalidError: No example has two binary targets without a reference of their own.
    """
    rng = Random(f"scales {seed}")
    usable = []
    for example in examples:
        binary = [one for one in example.targets if one.value in (0.0, 1.0) and one.criterion.scale.kind == "binary"]
        binary = [one for one in binary if not (one.criterion.reference or one.criterion.passages)]
        if len(binary) >= 2:
            usable.append((example, binary))
    if not usable:
        raise InvalidError("no completion has two binary criteria", hint="pass examples with several targets")
    for _ in range(count):  # the new target is on how many of the criteria are met
        example, binary = rng.choice(usable)
        joined = rng.sample(binary, min(rng.choice((2, 2, 3)), len(binary)))
        kept = tuple(target for target in example.targets if target not in joined)
        met, size = sum(target.value for target in joined), len(joined)
        items = "; ".join(f"({number}) {target.criterion.text.rstrip('.')}" for number, target in enumerate(joined, 1))
        text = rng.choice(TEXTS["scale"]).format(items=items)
        scale: Numeric | Ordinal
        if rng.random() < 0.4:
            low, high = rng.choice(((0.0, float(size)), (1.0, size + 1.0), (0.0, 10.0), (1.0, 5.0)))
            scale, family = Numeric(low=low, high=high), "scale_numeric"
        else:
            names = rng.choice(TEXTS["levels"][size])
            levels = [Level(label=name, value=number / size) for number, name in enumerate(names)]
            scale, family = Ordinal(levels=tuple(levels if rng.random() < 0.5 else levels[::-1])), "scale_ordinal"
        criterion = Criterion(key="scale", text=text, scale=scale)
        targets = (Target(criterion, met / size, family, f"{met:g} of {size}"), *kept)
        yield Example(example.prompt, example.completion, targets, "scales", example.group)
