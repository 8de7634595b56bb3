"""The embedded 135M model: its name, a warning, and fetching it."""

from __future__ import annotations

from rubricsvc.cli.output import echo, progress_bar
from rubricsvc.core.judge import Judge
from rubricsvc.settings import get_settings
from workers.engines.local.embedded_model import NAME, embedded_model

EMBEDDED = "embedded"


def warn_of_embedded() -> None:
    """Print a warning that the embedded model is no judge to rely on."""
    echo("the embedded 135M model is for trying things out: untrained, its verdicts are hardly better than chance")


def fetch_if_embedded(judge: Judge) -> None:
    """Fetch the embedded model if the judge or one of its members uses it."""
    if any(leaf.model == EMBEDDED for leaf in judge.leaf_judges):
        fetch_embedded()


def fetch_embedded() -> None:
    """Unpack the embedded model into the cache, with a progress bar, if it is missing."""
    cache = get_settings().cache_dir
    if (cache / NAME).is_dir():
        return
    with progress_bar("embedded model") as bar:
        embedded_model(cache, lambda what, share: bar.update(round(share * 100), 100, what))
