import json
from pathlib import Path
from typing import Any

from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Group
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.formats import load
from tests.unit.rubricsvc.formats.invalid import errors_of


def node(id_: str, weight: Any, *below: dict[str, Any], **fields: Any) -> dict[str, Any]:
    category = {} if below else {"task_category": "Code Development"}
    text = f"{id_} is done."
    return {"id": id_, "requirements": text, "weight": weight, "sub_tasks": list(below), **category, **fields}


def graded(id_: str, weight: float, score: float, **fields: Any) -> dict[str, Any]:
    return node(id_, weight, score=score, **{"valid_score": True, "explanation": f"Why {id_}.", **fields})


TREE = node(
    "root", 1, node("a", 1), node("b", 3, node("c", 2, finegrained_task_category="Setup"), node("d", 0)), node("e", 2)
)
GRADED = node(
    "root", 7, graded("a", 1, 1.0), node("b", 3, graded("c", 2, 0.5), graded("d", 1, 1.0), score=2 / 3), score=0.75
)


def write(folder: Path, *trees: Any) -> Path:
    path = folder / "paper.jsonl"
    path.write_text("".join(json.dumps(tree) + "\n" for tree in trees))
    return path


def test_read_makes_criteria_of_leaves_and_groups_of_nodes(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, TREE))
    task = record.rubric
    assert task is not None and task.formula == "tree"
    assert (record.name, record.prompt, record.labels) == ("paperbench-paper", None, ())
    assert [(c.key, c.weight, "/".join(c.group)) for c in task.criteria] == [
        *(("a", 1, "root"), ("c", 2, "root/b"), ("d", 0, "root/b"), ("e", 2, "root"))
    ]
    assert task.groups == (
        Group(path=("root",), weight=1, text="root is done."),
        Group(path=("root", "b"), weight=3, text="b is done."),
    )
    assert task.by_key["c"].tags == ("Code Development", "Setup")
    assert task.by_key["c"].text == "c is done."


def test_read_makes_labels_that_give_the_score_of_the_root(tmp_path: Path) -> None:
    (record,) = load(write(tmp_path, GRADED), format="paperbench")
    assert record.rubric is not None
    assert record.labels == tuple(
        Label(criterion=key, annotator="person 1", value=value, note=f"Why {key}.")
        for key, value in (("a", 1.0), ("c", 0.5), ("d", 1.0))
    )
    verdicts = [Verdict.scored(label.criterion, label.value) for label in record.labels]
    assert reward(record.rubric, verdicts).value == (1 * 1 + 3 * ((2 * 0.5 + 1 * 1) / 3)) / 4
    assert record.rubric.groups[0].weight == 1.0


def test_read_reports_line_and_field(tmp_path: Path) -> None:
    for tree, path, code in [
        (node("root", 1, node("a", -1)), "sub_tasks[0].weight", "greater_than_equal"),
        (node("root", 1, node("a", 1, requirements="")), "sub_tasks[0].requirements", "string_too_short"),
        (node("root", 1, node("a", "2")), "sub_tasks[0].weight", "float_type"),
        (node("root", 1, {"id": "a", "requirements": "…", "weight": 1}), "sub_tasks[0].sub_tasks", "missing"),
        (node("root", 1, graded("a", 1, 1.5)), "sub_tasks[0].score", "less_than_equal"),
        (node("root", 1, graded("a", 1, 1), node("b", 1)), "sub_tasks[1].score", "missing"),
        (node("root", 1, node("a", 1), score=0.5), "sub_tasks[0].score", "missing"),
        (node("root", 1, node("a", 0), node("b", 0)), "", "value_error"),
        (node("root", 1, node("a", 0, node("b", 1))), "formula", "formula"),
        (["no", "tree"], "", "model_type"),
    ]:
        assert errors_of(write(tmp_path, TREE, tree), "paperbench") == [("paper.jsonl", 2, path, code)]


def test_read_rejects_too_deep_trees(tmp_path: Path) -> None:
    for depth in [150, 5000]:
        path = tmp_path / "deep.json"
        path.write_text('{"id":"x","requirements":"x","weight":1,"sub_tasks":[' * depth + "]}" * depth)
        assert [(path, code) for _, _, path, code in errors_of(path, "paperbench")] == [("", "json_invalid")]


def test_read_accepts_the_published_trees(shared_data: Path) -> None:
    folder = shared_data / "paperbench" / "rubrics"
    trees = {path.stem: load(path)[0].rubric for path in sorted(folder.glob("*.json"))}
    assert len(trees) == 9
    assert max(len(c.group) for tree in trees.values() if tree for c in tree.criteria) == 9  # with the leaf, depth 10
    assert sum(len(tree.criteria) for tree in trees.values() if tree) == 2049


def test_read_gives_the_root_scores_of_graded_trees(shared_data: Path) -> None:
    for paper, leaves in [("rice", 361), ("pinn", 1963), ("stay-on-topic-with-classifier-free-guidance", 116)]:
        path = shared_data / "paperbench" / "human_graded" / f"{paper}.json"
        (record,) = load(path, format="paperbench")
        assert record.rubric is not None and len(record.labels) == leaves
        verdicts = [Verdict.scored(label.criterion, label.value) for label in record.labels]
        assert reward(record.rubric, verdicts, formula="tree").value == json.loads(path.read_text())["score"]
