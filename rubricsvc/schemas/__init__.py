"""Wire types of the HTTP API, shared by `rubricsvc.api` and `rubricsvc.client`, one module per noun.

Import them from here.
"""

from rubricsvc.schemas.base import (
    MAX_BATCH,
    Alive,
    Deletion,
    ErrorBody,
    FileProblem,
    ImportedFile,
    Page,
    Problem,
    Ready,
    StoredIds,
    Wire,
)
from rubricsvc.schemas.completions import (
    NewCompletion,
    NewCompletions,
    NewLabels,
    NewPrompt,
    StoredCompletion,
    StoredLabel,
    StoredPrompt,
    StoredVerdict,
)
from rubricsvc.schemas.jobs import Item, NewItem, NewJob, NewRewards, RetriedJob, RetryRequest, Rewards, StoredJob
from rubricsvc.schemas.judges import NewJudge, StoredJudge
from rubricsvc.schemas.rubrics import (
    LintReport,
    LintRequest,
    NewGeneration,
    NewReview,
    NewRubric,
    RubricEvent,
    StoredRubric,
    StoredRubricTest,
)
