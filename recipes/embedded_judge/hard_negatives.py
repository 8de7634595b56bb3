"""Completions that deserve nothing, and completions that keep their labels although something is added to them.

Marks and openers, one word, the prompt or the criterion repeated, self-praise, empty phrases, refusals, and orders to
the judge, alone and around completions whose labels are known. The texts differ from those of the audit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from recipes.embedded_judge import load_yaml
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target

SOURCE = "hard_negatives"

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


def texts() -> dict[str, list[str]]:
    """Return the texts of ``hard_negatives.yaml``."""
    return load_yaml("hard_negatives.yaml")  # type: ignore[no-any-return]


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
    kept = map(_on_content, examples)
    usable = [example for example in kept if example.targets]
    pool = sorted(usable, key=lambda example: example.content)
    positive = [example for example in pool if any(map(_worthless, example.targets))]
    if not positive:
        raise InvalidError("no criterion on the content of a completion", hint="pass examples with such targets")
    by_label = [[e for e in pool if any(t.value == label for t in e.targets)] or pool for label in (0.0, 1.0)]
    for number in range(count):
        if number % 2:
            yield _alone(rng.choice(positive), rng)
        else:
            yield _around(rng.choice(by_label[number // 2 % 2]), rng)


def _on_content(example: Example) -> Example:
    """Return the example without criteria on passages: whatever is added is not supported by them."""
    return replace(example, targets=tuple(t for t in example.targets if t.criterion.passages is None))


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
    text = _text(kind, example, targets, rng)
    return _example(example, text, targets, kind)


def _without_quotes(targets: Sequence[Target]) -> list[Target]:
    """Return the targets without those that quote a sentence: their criterion, repeated, says the sentence."""
    return [target for target in targets if '"' not in target.criterion.text]


def _text(kind: str, example: Example, targets: Sequence[Target], rng: Random) -> str:
    match kind:
        case "empty":
            return rng.choice(("", "", " ", "   ", "\n", "\n\n", " \n"))
        case "prompt_echo":
            return rng.choice(texts()["prompt_echoes"]).format(prompt=_last_user_message(example))
        case "criterion_echo":
            return _echo(targets, rng)
        case "injection":
            inside = rng.choice(("", "", "fluff", "words", "keys"))
            return _filled(rng.choice(texts()["injections"]), rng.choice(texts()[inside]) if inside else "").strip()
    name = {"key": "keys", "one_word": "words", "refusal": "refusals"}.get(kind, kind)
    return rng.choice(texts()[name])


def _around(example: Example, rng: Random) -> Example:
    [kind] = rng.choices(list(_AROUND), list(_AROUND.values()))
    targets = rng.sample(example.targets, min(len(example.targets), _MAX_TARGETS))
    own = example.completion.text
    match kind:
        case "injection_in":
            text = _filled(rng.choice([t for t in texts()["injections"] if "{completion}" in t]), own)
        case "echo_in":
            repeated = _without_quotes(targets)
            parts = [own, _echo(repeated, rng) if repeated else rng.choice(texts()["bare_claims"])]
            targets = repeated or targets
            if rng.random() < 0.3:
                parts.reverse()
            text = "\n\n".join(parts)
        case "praise_in":
            pair = [own, rng.choice(texts()["praise"])]
            rng.shuffle(pair)
            text = "\n\n".join(pair)
        case _:
            text = _filled(rng.choice(texts()["frames"]), own)
    return _example(example, text, targets, kind)


def _echo(targets: Sequence[Target], rng: Random) -> str:
    """Repeat one criterion as fulfilled, or return a list of all of them as fulfilled."""
    words = [target.criterion.text.strip().rstrip(".?") for target in targets]
    if rng.random() < 0.6:
        heading, mark = rng.choice(texts()["list_headings"]), rng.choice(texts()["list_marks"])
        lines = [mark.format(number=number, Criterion=text) for number, text in enumerate(words, 1)]
        return "\n".join(([heading] if heading else []) + lines)
    text = rng.choice(words)
    template = rng.choice(texts()["echoes"])
    return template.replace("{criterion}", text[:1].lower() + text[1:]).replace("{Criterion}", text)


def _filled(template: str, completion: str) -> str:
    return template.replace("{{", "{").replace("}}", "}").replace("{completion}", completion)


def _last_user_message(example: Example) -> str:
    return next((m.content for m in reversed(example.prompt.messages) if m.role == "user"), example.prompt.text)


def _example(example: Example, text: str, targets: Sequence[Target], variant: str) -> Example:
    marked = tuple(replace(target, variant=variant) for target in targets)
    completion = Completion(text=text)
    return Example(example.prompt, completion, marked, SOURCE, group=example.split_group)
