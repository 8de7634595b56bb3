"""What rules are given and find, their texts (``rules.toml``), and the ``languages`` whose wording they read."""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal, get_args

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # from the most severe

EmptyValue = Callable[[Criterion, Prompt | None], float | None]
"""Returns the value that a criterion's check gives an empty completion; None if that cannot be said."""


class Finding(Value):
    """What a rule has to say about a rubric, or about one criterion of it."""

    rule: str = Field(description="Name of the rule.")
    severity: Severity = Field(description="How grave it is.")
    criterion: str | None = Field(None, description="Key of the criterion; null if it is about the rubric.")
    message: str = Field(description="What is wrong.")
    fix: str = Field(description="What to write instead.")


LintHit = tuple[Criterion | None, str]
"""One place where a rule is broken, and the message; without a criterion it is about the rubric."""

_FOLDER = files("rubricsvc.lint")
_DATA = tomllib.loads(_FOLDER.joinpath("rules.toml").read_text(encoding="utf-8"))
ADVICE: dict[str, dict[str, Any]] = _DATA["rules"]  # severity and texts of each rule, by name


@dataclass(frozen=True, eq=False)
class Language:
    """The words of a language, and its patterns; one that it does not have matches nothing."""

    name: str
    stop: frozenset[str] = frozenset()
    endings: tuple[str, ...] = ()
    opposites: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    capitalized_nouns: bool = False
    patterns: Mapping[str, str] = field(default_factory=dict)

    compiled: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> re.Pattern[str]:
        """Return a pattern with the patterns that it names as ``<<name>>``."""
        if name not in self.compiled:
            parts = _DATA["patterns"] | self.patterns
            text = parts.get(name, "(?!)").replace("\n", "")
            while "<<" in text:
                text = re.sub(r"<<(\w+)>>", lambda found: parts[found[1]].replace("\n", ""), text)
            self.compiled[name] = re.compile(text)
        return self.compiled[name]


_LANGUAGES = _FOLDER.joinpath("languages")
_READ = [tomllib.loads(_LANGUAGES.joinpath(f"{code}.toml").read_text(encoding="utf-8")) for code in ("en", "de", "fr")]
CHECKED = tuple(Language(**one | {"stop": frozenset(one["stop"].split())}) for one in _READ)  # whose wording is checked
ENGLISH = CHECKED[0]
_OTHERS = tomllib.loads(_LANGUAGES.joinpath("others.toml").read_text(encoding="utf-8"))
_LATIN = (*CHECKED, *(Language(name, frozenset(words.split())) for name, words in _OTHERS["stop"].items()))
_OF_SCRIPT = {script: Language(name) for script, name in _OTHERS["scripts"].items()}
UNKNOWN = Language("none that is known")
LEAST_SHARE = 0.05  # of stop words among the words of a text, from which its language is known
_FOREIGN = re.compile(r"[“„«\"][^”“»\"]*[”“»\"]")


def language_of(text: str, otherwise: Language = ENGLISH) -> Language:
    """Return the language of a text, or ``otherwise`` where its words do not say.

    The script of most letters decides, and within Latin the language with most stop words and verbs of saying, at least
    ``LEAST_SHARE`` of the words, and twice as many as ``otherwise`` has. Quotations do not count.
    """
    own = _FOREIGN.sub(" ", text).casefold()
    if not own.isascii():
        scripts = Counter(unicodedata.name(one, "").split(" ")[0] for one in own if one.isalpha())
        if scripts.pop("LATIN", 0) < 5 * scripts.total():  # a letter of Han is a word, and five of Latin are one
            script = "HIRAGANA" if scripts["HIRAGANA"] + scripts["KATAKANA"] else scripts.most_common(1)[0][0]
            return _OF_SCRIPT.setdefault(script, Language(f"{script.title()} script"))
    words = re.findall(r"[^\W\d_]+", own)
    counts = Counter({one: sum(w in one.stop or bool(one["saying"].match(w)) for w in words) for one in _LATIN})
    most = max(counts.values())
    first, *others = [one for one in _LATIN if counts[one] == most]  # of several only English, which is first, is sure
    least = max(LEAST_SHARE * len(words), 2 * counts[otherwise] + 2 * (otherwise is not UNKNOWN), 1)
    return first if most >= least and (first is ENGLISH or not others) else otherwise


@dataclass(frozen=True)
class Subject:
    """A rubric to look at, with its prompt where it has one."""

    rubric: Rubric
    prompt: Prompt | None = None
    empty_value: EmptyValue | None = None

    @cached_property
    def judged(self) -> tuple[Criterion, ...]:
        """The criteria whose text a judge reads: no check decides them, and no custom prompt replaces the text."""
        return tuple(one for one in self.rubric.criteria if one.check is None and one.custom_prompt is None)

    @cached_property
    def languages(self) -> dict[str, Language]:
        """The language of each judged criterion, by key: its own, or the rubric's if its own words do not say."""
        texts = {one.key: one.text[:2000] for one in self.judged}
        whole = " ".join(texts.values())
        of_rubric = language_of(whole, UNKNOWN if len(whole.split()) > 4 else ENGLISH)
        return {key: language_of(text, of_rubric) for key, text in texts.items()}


Find = Callable[[Subject], Iterable[LintHit]]  # what a rule finds in a rubric
