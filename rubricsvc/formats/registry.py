"""The formats by name: how each is read, recognized and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rubricsvc.formats import (
    autorubric,
    biggen,
    canvas,
    cherrl,
    criteria_csv,
    deep_research_bench,
    deepscholar,
    gsm8k,
    harbor,
    healthbench,
    hellobench,
    ifeval,
    native,
    openai_grader,
    paperbench,
    preferences,
    profbench,
    researchrubrics,
    rubric_labels,
    rubrichub,
    scholarqa,
    tinker,
    truthfulqa,
    verl,
    writingbench,
)
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry, Record, Row


@dataclass(frozen=True)
class Format:
    """A format, and the ``fields`` that identify it: a record with all fields of one of these lists has this format.

    ``read`` yields the valid records of a file, and adds the errors of the others to ``file.errors``. ``dump`` returns
    the rows of one record: JSON objects, or the lines of a ``csv`` file, or the one document of a ``toml`` file, whose
    columns are ``columns``.
    """

    read: Callable[[InputFile], Iterator[Record]]
    fields: tuple[str, ...] = ()
    matches: Callable[[Any], bool] | None = None
    dump: Callable[[Record], Iterable[Row]] | None = None
    kind: Literal["json", "csv", "toml"] = "json"
    columns: tuple[str, ...] = ()

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has this format."""
        fields = set(first) if isinstance(first, dict) else set()
        named = any(fields.issuperset(names.split()) for names in self.fields)
        return named or (self.matches is not None and self.matches(first))


def _format(read: Callable[[Entry], Iterable[Record]], *fields: str, **options: Any) -> Format:
    return Format(lambda file: file.parse(read), fields, **options)


_DEEP_RESEARCH_BENCH = ("criterions dimension_weight", "topic language prompt", "article prompt")
_OPENAI = ("item grader", "testing_criteria", "reinforcement type", "type input", "type source", "type graders")
FORMATS = {
    "native": _format(native.read, "prompt completions", matches=native.matches, dump=native.rows),
    "healthbench": _format(healthbench.read, "prompt_id rubrics", "prompt_id binary_labels", dump=healthbench.dump),
    "deep_research_bench": Format(deep_research_bench.read, _DEEP_RESEARCH_BENCH),
    "deep_research_bench_en": Format(partial(deep_research_bench.read, language="en"), ()),
    "deep_research_bench_zh": Format(partial(deep_research_bench.read, language="zh"), ()),
    "paperbench": _format(paperbench.read, "requirements weight sub_tasks"),
    "scholarqa": _format(
        scholarqa.read, "initial_prompt metric_config", "question src_answers", "input output ctxs", dump=scholarqa.dump
    ),
    "biggen": _format(biggen.read, "capability instance_idx score_rubric", dump=biggen.dump),
    "writingbench": _format(writingbench.read, "index query checklist", dump=writingbench.dump),
    "hellobench": _format(hellobench.read, "instruction checklists", dump=hellobench.dump),
    "deepscholar": _format(deepscholar.read, "query nuggets", dump=deepscholar.dump),
    "dr_tulu": _format(rubric_labels.read_dr_tulu, matches=rubric_labels.matches, dump=rubric_labels.dump),
    "open_instruct": _format(rubric_labels.read_open_instruct, matches=rubric_labels.matches, dump=rubric_labels.dump),
    "verl": _format(verl.read, "prompt reward_model", dump=verl.dump),
    "rubrichub": _format(rubrichub.read, matches=rubrichub.matches, dump=rubrichub.dump),
    "harbor": _format(harbor.read, matches=harbor.matches, dump=harbor.dump, kind="toml"),
    "profbench": _format(profbench.read, matches=profbench.matches, dump=profbench.dump),
    "researchrubrics": Format(
        researchrubrics.read,
        ("prompt title weight category",),
        dump=researchrubrics.dump,
        kind="csv",
        columns=researchrubrics.COLUMNS,
    ),
    "autorubric": Format(autorubric.read, matches=autorubric.matches, dump=autorubric.dump),
    "ldc": Format(autorubric.read_ldc, matches=autorubric.matches_ldc, dump=autorubric.dump_ldc),
    "tinker": _format(tinker.read, "convo rubric_items", dump=tinker.dump),
    "canvas": Format(canvas.read, matches=canvas.matches, dump=canvas.dump, kind="csv", columns=canvas.COLUMNS),
    "ifeval": _format(ifeval.read, "prompt instruction_id_list kwargs", dump=ifeval.dump),
    "openai_grader": _format(openai_grader.read, *_OPENAI, dump=openai_grader.dump),
    "llmbar": _format(preferences.llmbar, "input output_1 output_2 label"),
    "evalbiasbench": _format(preferences.evalbiasbench, "bias instruction response1 response2"),
    "gsm8k": _format(gsm8k.read, "question ground_truth"),
    "criteria_csv": Format(criteria_csv.read, dump=criteria_csv.dump, kind="csv", columns=criteria_csv.COLUMNS),
    "cherrl": _format(cherrl.read, "sample_id prompt_input model_output"),
    "truthfulqa": Format(truthfulqa.read, matches=truthfulqa.matches),
}
