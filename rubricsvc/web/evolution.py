"""The page of an evolution: what the best candidate gains, how it was made, and the lineage of all as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rubricsvc import __version__
from rubricsvc.core.evolution import UNITS, CandidateSummary, EvolutionReport
from rubricsvc.web.pages import render

WIDTH, LEFT, STEP, PAD = 960, 90, 13, 14
"""Of the picture: width, room for the islands' names, height of a candidate, and room around an island."""
MAX_PICTURED = 1500


@dataclass(frozen=True)
class Node:
    """A candidate in the picture; ``shade`` is its score from 0 to 1 among those on the whole search part."""

    one: CandidateSummary
    x: float
    y: float
    shade: float
    on_path: bool


@dataclass(frozen=True)
class Edge:
    """A line from a parent to a child."""

    start: Node
    end: Node

    @property
    def on_path(self) -> bool:
        """Whether it is part of the best candidate's lineage."""
        return self.start.on_path and self.end.on_path


@dataclass(frozen=True)
class Picture:
    """The lineage, with the top of each island's lane."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    lanes: tuple[float, ...]
    columns: tuple[float, ...]
    height: float


def render_evolution(report: EvolutionReport) -> str:
    """Return the page of an evolution as HTML. Texts are escaped, and the page loads nothing."""
    return render(
        "evolution.html.j2",
        report=report,
        one=report.summary,
        units=f"{UNITS[report.summary.objective]}s",
        picture=picture(report),
        operators=Counter(one.operator for one in report.candidates).most_common(),
        width=WIDTH,
        p=probability,
        version=__version__,
    )


def probability(p: float) -> str:
    """Return a probability as ``= 0.012``, or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def picture(report: EvolutionReport) -> Picture:
    """Return the picture of the lineage: generations from left to right, islands below one another."""
    settings = report.settings
    lane = settings.children * STEP + PAD
    tops = tuple(PAD + island * lane for island in range(settings.islands))
    column = (WIDTH - LEFT - 40) / settings.generations
    columns = tuple(LEFT + 20 + generation * column for generation in range(settings.generations + 1))
    scores = [one.score for one in report.candidates if one.whole and one.score is not None]
    low, span = (min(scores), max(scores) - min(scores)) if scores else (0.0, 0.0)
    path = {one.number for one in report.lineage}
    height = tops[-1] + lane
    nodes: dict[int, Node] = {}
    for one in _pictured(report.candidates, path):
        place = (one.number - 1) % (settings.islands * settings.children) // settings.islands
        y = height / 2 if one.number == 0 else tops[one.island] + (place + 0.5) * STEP
        shade = (
            0.25 + 0.75 * ((one.score - low) / span if span else 1.0) if one.whole and one.score is not None else 0.0
        )
        nodes[one.number] = Node(one, columns[one.generation], y, shade, one.number in path)
    edges = [
        Edge(nodes[parent], node)
        for node in nodes.values()
        for parent in node.one.parents
        if parent in nodes and (node.one.whole or node.on_path)
    ]
    return Picture(tuple(nodes.values()), tuple(sorted(edges, key=lambda edge: edge.on_path)), tops, columns, height)


def _pictured(candidates: Sequence[CandidateSummary], path: set[int]) -> list[CandidateSummary]:
    return [one for place, one in enumerate(candidates) if place < MAX_PICTURED or one.number in path]
