"""The test of a rubric by a judge: its examples, then faults that are planted into good ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_test import ExampleTest, FaultReport, RubricTest
from rubricsvc.errors import InvalidError, UnavailableError
from workers.authoring.author import GenerationError
from workers.authoring.faults.catching import NO_RULE, NOT_WRITTEN, catch_faults, fault_report
from workers.authoring.faults.rules import Fault, GoodExample, faults_by_rule, good_examples
from workers.authoring.faults.written import NO_TEXT, write_faults, write_good
from workers.authoring.rubric_tests import OnDone, RubricTester, check_testable
from workers.engines.base import Engine

Result = TypeVar("Result")
Action = Callable[[Engine], Coroutine[Any, Any, Result]]


class Ask(Protocol):
    """Runs an action with the engine of a judge."""

    def __call__(self, judge: Judge, action: Action[Result], /) -> Result:
        """Return the result of the action."""


Progress = Callable[[str, int], AbstractContextManager[OnDone]]
"""Shows the progress of so many texts; what it gives is called after each."""


@dataclass(frozen=True)
class FaultOptions:
    """How faults are made.

    Attributes:
        faults_by: Judge whose model writes them; without one they are planted by rule.
        good_by: Judge whose model writes one more good example to plant faults into.
        min_catch: Least catch rate of each criterion that passes.
    """

    faults_by: Judge | None = None
    good_by: Judge | None = None
    min_catch: float | None = None


@dataclass(frozen=True)
class RubricTestRun:
    """Tests one rubric by one judge; ``prompt`` is that of the rubric, ``on_note`` is called with remarks."""

    rubric: Rubric
    prompt: Prompt | None
    judge: Judge
    ask: Ask
    progress: Progress
    on_note: Callable[[str], None]

    def run(self, faults: FaultOptions | None = None) -> RubricTest:
        """Ask the judge about the examples, then about the faults.

        Raises:
            InvalidError: The judge cannot be asked about one text, or a prompt is missing.
            UnavailableError: The model that writes cannot be asked.
            GenerationError: It writes no text.
        """
        check_testable(self.judge, self.rubric, self.prompt)
        examples = self.rubric.examples or ()
        tests = self._asked("examples", len(examples), lambda tester: tester.run_examples(examples))
        return RubricTest(
            judge=self.judge.name,
            judge_digest=self.judge.digest,
            rubric_digest=self.rubric.digest,
            examples=tuple(tests),
            faults=self._fault_report(tests, faults) if faults is not None else None,
        )

    def _asked(
        self, what: str, total: int, action: Callable[[RubricTester], Coroutine[Any, Any, list[Result]]]
    ) -> list[Result]:
        if not total:
            return []
        with self.progress(what, total) as on_done:

            def run(engine: Engine) -> Coroutine[Any, Any, list[Result]]:
                return action(RubricTester(engine, self.judge, self.rubric, self.prompt, on_done=on_done))

            return self.ask(self.judge, run)

    def _fault_report(self, tests: Sequence[ExampleTest], options: FaultOptions) -> FaultReport:
        """Plant faults into the good examples, and ask the judge about them."""
        bases = good_examples(self.rubric)
        if options.good_by is not None:
            bases += self._written_examples(options.good_by)
        by_rule = [base for base in bases if base.criterion.check is not None or options.faults_by is None]
        faults: list[Fault] = [fault for base in by_rule for fault in faults_by_rule(self.rubric, base)]
        if (writer := options.faults_by) is not None:
            judged = [base for base in bases if base.criterion.check is None]
            with self.progress("writing faults", len(judged)) as on_done:
                faults += self._written(
                    writer, lambda engine: write_faults(engine, writer, self.prompt, judged, on_done)
                )
        caught = self._asked("faults", len(faults), lambda tester: catch_faults(tester, faults))
        no_fault = NO_RULE if options.faults_by is None else NOT_WRITTEN
        return fault_report(self.rubric, bases, caught, tests, min_catch=options.min_catch, no_fault=no_fault)

    def _written_examples(self, writer: Judge) -> list[GoodExample]:
        """Have a good completion written, and return what the judge finds good about it."""
        examples = self.rubric.examples or ()
        prompt = self.prompt or next((one.prompt for one in examples if one.prompt is not None), None)
        if prompt is None:
            raise InvalidError("the rubric is for any prompt", hint="add a prompt to the rubric", path="prompt")
        example = self._written(writer, lambda engine: write_good(engine, writer, self.rubric, prompt))
        (tested,) = self._asked("the written example", 1, lambda tester: tester.run_examples([example]))
        good = {one.criterion for one in tested.verdicts if one.passed}
        self.on_note(f"the written example is good by {len(good)} of {len(tested.verdicts)} criteria")
        if not good:
            return []
        kept = {key: expected for key, expected in (example.verdicts or {}).items() if key in good}
        accepted = example.model_copy(update={"verdicts": kept})
        return good_examples(self.rubric.model_copy(update={"examples": (accepted,)}))

    def _written(self, writer: Judge, action: Action[Result]) -> Result:
        try:
            return self.ask(writer, action)
        except GenerationError as error:
            if error.reason == NO_TEXT:
                raise
            hint = "start its server, or plant faults by rule: --faults"
            raise UnavailableError(f"{writer.name}: {error.message}", hint=hint) from error
