"""Types of states. They import no library, so that the command line starts fast."""

from typing import Final, Literal

JobStatus = Literal["queued", "in_progress", "completed", "completed_with_failures", "budget_exhausted", "cancelled"]
JobKind = Literal["score", "generate"]
ItemState = Literal["pending", "leased", "done", "failed", "cancelled"]
Outcome = Literal["scored", "abstained", "failed"]

ItemSort = Literal["id", "reward", "-reward"]
"""Order of a job's items: by id, or by rising or falling reward with those without a reward last."""

RubricState = Literal["draft", "in_review", "approved", "retired"]
DRAFT: Final = "draft"
IN_REVIEW: Final = "in_review"
APPROVED: Final = "approved"
RETIRED: Final = "retired"

RubricOrigin = Literal["imported", "api", "grader", "written", "generated", "evolved", "fitted"]
"""Where a version comes from: a file, the API, a grader, this package, a model, a search or a fit to labels."""
IMPORTED: Final = "imported"
GENERATED: Final = "generated"
EVOLVED: Final = "evolved"
FITTED: Final = "fitted"

NOT_APPROVED: Final[tuple[RubricState, ...]] = (DRAFT, IN_REVIEW)
OF_MODELS: Final[tuple[RubricOrigin, ...]] = (GENERATED, EVOLVED)
"""The origins of text that a model wrote."""

ReviewAction = Literal["submit", "approve", "reject", "retire", "comment"]
"""What a reviewer does; all but ``comment`` change the state."""

ApprovalPolicy = Literal["generated", "all", "four_eyes", "none"]
"""Which rubrics are drafts when they are added: those of a model, all, or none; four_eyes: all, for another person."""
BY_PEOPLE: Final = ("all", "four_eyes")

RunState = Literal["running", "paused", "stopped", "finished", "failed"]  # what a trainer reports of its run
RunStatus = Literal["running", "paused", "stopped", "finished", "failed", "lost"]
"""A run is ``lost`` while its trainer should report and does not."""
