"""CHERRL's rollouts (arXiv 2606.04923): completions of policies that learned to exploit a biased rubric judge.

Each rollout becomes a record whose policy is the run. The labels are weak, taken from the region in the sample's id: 1
before the onset of the hack, 0 after it, none at the onset. The data set holds the rollouts that the biased judge
scored highest, so even those before the onset may be hacks.
"""

from __future__ import annotations

from collections.abc import Iterator

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Text

RUBRIC = Rubric(criteria=(Criterion(key="good", text="The answer does well what the task asks."),))
_REGIONS = {"pre_onset": 1.0, "post_onset": 0.0}


class _Rollout(ForeignModel):
    sample_id: Text
    run_name: Text
    prompt_input: Text
    model_output: str


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a rollout."""
    rollout = entry.build(_Rollout, entry.data)
    # the prompt has role words around it, and the two characters \n for a line break
    task = rollout.prompt_input.replace("\\n", "\n").removeprefix("user\n").removesuffix("\nassistant")
    region = next((value for name, value in _REGIONS.items() if name in rollout.sample_id), None)
    label = Label(criterion="good", annotator="dataset", value=region)
    completion = Completion(text=rollout.model_output, policy=rollout.run_name, id=rollout.sample_id)
    name = rubric_name(rollout.sample_id)
    yield Record(Prompt.of(task), RUBRIC, (completion,), (label,), name, name, entry.location)
