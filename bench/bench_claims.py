"""Does a judge see whether a claim follows from the passage that it cites? Related work of papers and their citations.

    python -m bench.bench_claims [--claims N] [--seed S] [--made] [--url URL --model NAME] [--data FOLDER]

A sentence of a related-work section of DeepScholar-bench (arXiv 2508.20033) that cites one work is a claim. It is shown
with the abstract of that work (grounded) and with the abstract of another work that the same section cites (not
grounded), by a criterion with ``each: claim``. Labels follow from construction: some sentences say what no abstract
says, so that no judge can reach an AUROC of 1.

With ``--made`` the claims are sentences of abstracts and of experts' answers, in other words (grounded), altered, or
beside another part of their document. Of the alterations, three were never trained on: another unit, another word, and
the end of another sentence. Beside the judges stands the share of the claim's words that the document has. Intervals
are bootstrapped over papers. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.deepscholar import HEADING, read_deepscholar
from bench.judge_tests import research_documents
from recipes.embedded_judge.alterations import alterations, paraphrase
from recipes.embedded_judge.statements import topics
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.collections.index import Page
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.agreement import auroc
from rubricsvc.stats.intervals import ENDS, cluster_draws
from tests.conftest import SHARED
from workers.checks.markdown import paragraphs, plain, sentences
from workers.engines import make_engine
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.weights import SHIPPED_ADAPTER, judge_with_adapter
from workers.repetitions import WORD
from workers.scoring.completions import nearest_passage, score

RUBRIC = Rubric(criteria=(Criterion(key="grounded", text="Says what the evidence says.", each="claim"),))
WORDS = "share of its words in the abstract"
CITED = "work"
"""The id of the work that is cited, whichever abstract it is given."""


@dataclass(frozen=True)
class Pair:
    """A claim with an abstract, whether the claim cites that work, and what the judges say."""

    paper: str
    claim: str
    abstract: str
    grounded: bool
    scores: dict[str, float | None] = field(default_factory=dict)


def claims_of(paper: Page) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a related-work section that cite one work, each with the id of that work."""
    start = paper.text.index(HEADING) + len(HEADING)
    marked, place = "", start
    for number, link in enumerate(paper.links):
        marked += f"{paper.text[place : link.start].rstrip(' (')} [{number}]"
        place = link.end + paper.text[link.end :].startswith(")")
    for paragraph in paragraphs(marked):
        for sentence in sentences(paragraph):
            cited = [number for number in range(len(paper.links)) if f"[{number}]" in sentence]
            if len(cited) == 1:
                text = " ".join(sentence.replace(f"[{cited[0]}]", " ").split())
                if 8 <= len(text.split()) <= 60:
                    yield text, paper.links[cited[0]].target


def pairs_of(pages: Sequence[Page], count: int, seed: int) -> list[Pair]:
    """Return two pairs for each of ``count`` claims: with the work that it cites, and with another of its section."""
    rng = random.Random(seed)
    by_id = {page.id: page for page in pages}
    claims = [
        (page, text, target)
        for page in pages
        if HEADING in page.text
        for text, target in claims_of(page)
        if target in by_id
    ]
    found: list[Pair] = []
    for page, text, target in rng.sample(claims, min(count, len(claims))):
        others = sorted({link.target for link in page.links} & by_id.keys() - {target})
        if others:
            other = by_id[rng.choice(others)]
            found.append(Pair(page.id, text, by_id[target].text, True))
            found.append(Pair(page.id, text, other.text, False))
    return found


_UNITS = {"hours": "days", "days": "weeks", "years": "months", "meters": "kilometers", "tokens": "sentences"}
_UNITS |= {"words": "sentences", "questions": "papers", "images": "videos", "percent": "points", "months": "years"}
_LONG = re.compile(r"(?<![\w`-])[a-z]{6,}(?![\w`-])")
_JOINT = re.compile(r" (?:that|which|is|are|can|with|for|by|to|in) ")
_NEAR = 0.75
"""Share of a claim's words that a part of a document may have at most where it does not make the claim."""


def untrained_alterations(sentence: str, others: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Return altered forms of a sentence, by kinds that no recipe has; ``others`` are sentences of its document."""
    found, words = {}, _LONG.findall(sentence)
    for unit in _UNITS.keys() & set(words):
        found["unit"] = re.sub(rf"\b{unit}\b", _UNITS[unit], sentence)
    known = sorted({word for one in others for word in _LONG.findall(one)} - set(words))
    for word in rng.sample(words, len(words)):
        if alike := [one for one in known if one[-2:] == word[-2:] and one[:4] != word[:4]]:
            found["word"] = re.sub(rf"\b{word}\b", rng.choice(alike), sentence, count=1)
            break
    start = len(sentence) // 4
    if joint := _JOINT.search(sentence, start):
        ends = [one[one.index(joint[0]) :] for one in others if joint[0] in one]
        if ends := [end for end in ends if len(end.split()) > 3]:
            found["splice"] = sentence[: joint.start()] + rng.choice(ends)
    return found


def made_pairs(data: Path, count: int, seed: int) -> list[Pair]:
    """Return up to four pairs for each of ``count`` claims: in other words, altered, and with another part."""
    rng, documents = random.Random(seed), {one.id: one for one in research_documents(data)}
    topical, names = topics(documents.values())
    found: list[Pair] = []
    while count:
        topic = rng.choice(topical)
        sentence, text = rng.choice(topic.sentences), " ".join(documents[topic.id].text.split())
        new = untrained_alterations(sentence, [one for one in topic.sentences if one != sentence], rng)
        kinds = [one for one in (new, alterations(sentence, topic.codes, rng)) if one]
        passage, words = nearest_passage(text, sentence), text.split()
        parts = [" ".join(words[start : start + 120]) for start in range(0, max(1, len(words) - 60), 60)]
        parts += [documents[one.id].text for one in rng.sample(topical, 8) if one.id != topic.id]
        near = {one: share for one in parts if (share := share_of_words(sentence, one)) < _NEAR}
        if not kinds or not near or share_of_words(sentence, passage) < 0.9:
            continue
        count -= 1
        altered = rng.choice(list((chosen := rng.choice(kinds)).values()))
        altered = altered if chosen is new else paraphrase(altered, rng, names)
        stated = dict.fromkeys(paraphrase(sentence, rng, names) for _ in range(2))
        found += [Pair(topic.id, text, passage, True) for text in stated]
        found += [
            Pair(topic.id, altered, passage, False),
            Pair(topic.id, sentence, max(near, key=lambda one: near[one]), False),
        ]
    return found


def share_of_words(claim: str, text: str) -> float:
    """Return the share of a claim's words of over three letters that a text has."""
    words = {word for word in WORD.findall(plain(claim)) if len(word) > 3}
    return len(words & set(WORD.findall(plain(text)))) / max(1, len(words))


def shared_words(pair: Pair) -> float:
    """Return the share of a claim's words that its document has."""
    return share_of_words(pair.claim, pair.abstract)


async def judge_pairs(name: str, judge: Judge, pairs: Sequence[Pair]) -> None:
    """Ask a judge about each pair."""
    engine = make_engine(judge)
    try:
        for number, pair in enumerate(pairs, start=1):
            prompt = Prompt.of("Write the related-work section of a paper.").model_copy(
                update={"documents": (Document(id=CITED, text=pair.abstract),)}
            )
            (verdict,) = await score(engine, judge, RUBRIC, prompt, Completion(text=f"{pair.claim} [{CITED}]"))
            pair.scores[name] = verdict.value
            print(f"\r{name}: {number}/{len(pairs)} claims", end="", file=sys.stderr, flush=True)
    finally:
        await engine.aclose()


def figure(pairs: Sequence[Pair], name: str) -> dict[str, float]:
    """Return the AUROC with its 95 % interval, and how many pairs have a score."""
    rows = [one for one in pairs if one.scores[name] is not None]
    papers: dict[str, int] = defaultdict(lambda: len(papers))
    scores = np.array([one.scores[name] for one in rows], float)
    labels = np.array([float(one.grounded) for one in rows])
    draws = cluster_draws(np.array([papers[one.paper] for one in rows]), 1000, seed=0)
    low, high = np.quantile([auroc(scores[d], labels[d]) for d in draws if len(set(labels[d])) == 2], ENDS)
    return {"pairs": len(rows), "auroc": auroc(scores, labels), "low": low, "high": high}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--trained-only", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--data", type=Path, default=SHARED)
    given = parser.parse_args()
    if given.url:
        judges = {given.model: Judge(name="served", model=given.model, endpoint=Endpoint(base_url=given.url))}
    else:
        fetch_embedded()
        trained = judge_with_adapter("trained", SHIPPED_ADAPTER)
        judges = {
            "trained": trained,
            "untrained": Judge(name="untrained", engine=trained.engine, model=EMBEDDED, min_answer_mass=0.1),
        }
    if given.trained_only:
        judges.pop("untrained", None)
    if given.made:
        pairs = made_pairs(given.data, given.claims, given.seed)
    else:
        pairs = pairs_of(list(read_deepscholar(given.data / "deepscholar_bench").pages), given.claims, given.seed)
    for pair in pairs:
        pair.scores[WORDS] = shared_words(pair)
    for name, judge in judges.items():
        asyncio.run(judge_pairs(name, judge, pairs))
    found = {name: figure(pairs, name) for name in (*judges, WORDS)}
    print(f"\n{len({one.paper for one in pairs})} papers\n\n| | pairs | AUROC |\n|---|--:|--:|")
    for name, one in found.items():
        print(f"| {name} | {one['pairs']} | {one['auroc']:.2f} [{one['low']:.2f}, {one['high']:.2f}] |")
    print(json.dumps({"bench": "claims", **found}))


if __name__ == "__main__":
    main()
