"""`LocalService`: every noun of the service in this process, with the methods that `Client` has over HTTP."""

from __future__ import annotations

from pathlib import Path

from rubricsvc.core.states import ApprovalPolicy
from rubricsvc.services.completions import Completions, Labels, Prompts, Verdicts
from rubricsvc.services.editing import Edit
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.importing import Imports
from rubricsvc.services.jobs import Jobs
from rubricsvc.services.judges import Judges
from rubricsvc.services.keys import Keys
from rubricsvc.services.rewards import Rewards
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.services.runs import Runs
from rubricsvc.services.validators import Validators
from rubricsvc.services.workers import Workers
from rubricsvc.store.session import Database


class LocalService:
    """The service over a database in this process.

    Args:
        db: The database, which the caller closes.
        caller: Person or API key that acts.
        approval: Which rubrics are drafts when they are added.
        validators: Checks of the workers.
        collections_dir: Folder of collections, by default that of the settings.
    """

    def __init__(
        self,
        db: Database,
        *,
        caller: str | None = None,
        approval: ApprovalPolicy = "generated",
        validators: Validators | None = None,
        collections_dir: Path | None = None,
    ) -> None:
        self.address = db.url
        self.db, self.caller, self.approval = db, caller, approval
        self.validators = validators or Validators()
        self.prompts = Prompts(db)
        self.imports = Imports(db, Edit(caller, policy=approval), self.validators.rubric)
        self.completions, self.verdicts, self.labels = Completions(db), Verdicts(db), Labels(db)
        self.jobs = Jobs(db)
        self.rubrics = Rubrics(
            db, caller=caller, approval=approval, validators=self.validators, collections_dir=collections_dir
        )
        self.rewards = Rewards(db, caller=caller, approval=approval, validators=self.validators)
        self.evolutions = Evolutions(db)
        self.runs = Runs(db, approval, rubric=self.validators.rubric, signs=self.validators.signs)
        self.judges, self.keys, self.workers = Judges(db, self.validators), Keys(db), Workers(db)
