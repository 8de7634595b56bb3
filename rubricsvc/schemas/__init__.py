"""Wire types of the HTTP API, shared by `rubricsvc.api` and `rubricsvc.client`, one module per noun.

Import them from here.
"""

from rubricsvc.schemas.base import (
    MAX_BATCH,
    Alive,
    ErrorBody,
    FileProblem,
    Page,
    Problem,
    Ready,
    Stored,
    StoredIds,
    Wire,
)
from rubricsvc.schemas.completions import (
    NewCompletion,
    NewCompletions,
    NewLabel,
    NewLabels,
    StoredCompletion,
    StoredLabel,
    StoredVerdict,
)
from rubricsvc.schemas.imports import ImportedFile
from rubricsvc.schemas.jobs import (
    Item,
    MinCoverage,
    NewItem,
    NewJob,
    NewRewards,
    RetriedJob,
    RetryRequest,
    Rewards,
    StoredJob,
)
from rubricsvc.schemas.judges import NewJudge, StoredJudge
from rubricsvc.schemas.prompts import NewPrompt, StoredPrompt
from rubricsvc.schemas.rubrics import (
    GeneratedRubric,
    LintReport,
    LintRequest,
    NewGeneration,
    NewReview,
    NewRubric,
    RubricEvent,
    StoredRubric,
    StoredRubricTest,
)
