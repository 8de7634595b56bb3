"""Does a judge see whether a claim follows from the passage that it cites? Related work of papers and their citations.

    python -m bench.bench_claims [--claims N] [--seed S] [--url URL --model NAME] [--data FOLDER]

A sentence of a related-work section of DeepScholar-bench (arXiv 2508.20033) that cites one work is a claim. It is shown
with the abstract of that work (grounded) and with the abstract of another work that the same section cites (not
grounded), by a criterion with ``each: claim``. Labels follow from construction: some sentences say what no abstract
says, so that no judge can reach an AUROC of 1. Beside the judges stands the share of the claim's words that the
abstract has. Intervals are bootstrapped over papers. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.deepscholar import HEADING, read_deepscholar
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
from workers.scoring.completions import score

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


def shared_words(pair: Pair) -> float:
    """Return the share of a claim's words of over three letters that the abstract has."""
    words = {word for word in WORD.findall(plain(pair.claim)) if len(word) > 3}
    return len(words & set(WORD.findall(plain(pair.abstract)))) / max(1, len(words))


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
    parser.add_argument("--url")
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--data", type=Path, default=SHARED / "deepscholar_bench")
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
    pairs = pairs_of(list(read_deepscholar(given.data).pages), given.claims, given.seed)
    for pair in pairs:
        pair.scores[WORDS] = shared_words(pair)
    for name, judge in judges.items():
        asyncio.run(judge_pairs(name, judge, pairs))
    found = {name: figure(pairs, name) for name in (*judges, WORDS)}
    print(
        f"\n{len({one.paper for one in pairs})} papers, {len(pairs) // 2} claims\n\n| | pairs | AUROC |\n|---|--:|--:|"
    )
    for name, one in found.items():
        print(f"| {name} | {one['pairs']} | {one['auroc']:.2f} [{one['low']:.2f}, {one['high']:.2f}] |")
    print(json.dumps({"bench": "claims", **found}))


if __name__ == "__main__":
    main()
