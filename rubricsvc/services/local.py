"""`LocalService`: every noun of the service in this process, with the methods that `Client` has over HTTP."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ApprovalPolicy
from rubricsvc.lint import EmptyValue
from rubricsvc.services.completions import Completions, Labels, Prompts, Verdicts
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.importing import Imports
from rubricsvc.services.jobs import Jobs, Rewards
from rubricsvc.services.judges import Judges
from rubricsvc.services.keys import Keys
from rubricsvc.services.rubrics import CompareRewards, Rubrics
from rubricsvc.services.runs import FindAlarms, Runs, Sign
from rubricsvc.services.versions import Edit
from rubricsvc.services.workers import Workers
from rubricsvc.store import session
from rubricsvc.store.session import Database, name_of, open_database, sqlite_file
from rubricsvc.waiting import Notify

__all__ = ["LocalService", "Validators", "open_database", "sqlite_file", "upgrade_schema"]


def upgrade_schema(url: str) -> tuple[str | None, str]:
    """Upgrade a database to the newest schema; return the one before (None: there was none) and the newest."""
    with closing(Database(url)) as db:
        file = sqlite_file(db.url)
        before = None if file is not None and not file.exists() else session.current_revision(db)
        session.upgrade(db)
    return before, session.revisions()[0]


@dataclass(frozen=True)
class Validators:
    """Checks of values that only the workers can make: a rubric's checks exist, a judge's engine and template exist.

    Services do not import the workers, so the process that starts them passes their functions. ``rubric`` and
    ``judge`` raise InvalidError; ``empty_value`` runs a check on an empty completion. ``alarms`` are those of a
    run, and ``signs`` what their examples show. ``complete_answered`` scores what of a job needs no question, and
    ``worker`` is a worker of this process for a job that no other can receive.
    """

    rubric: Callable[[Rubric], None] = lambda _: None
    judge: Callable[[Judge], None] = lambda _: None
    empty_value: EmptyValue | None = None
    alarms: FindAlarms = lambda _steps, _evaluations: []
    signs: Callable[[], Mapping[str, Sign]] = dict
    reward_changes: CompareRewards | None = None
    complete_answered: Callable[[Database, int], object] = lambda _db, _job_id: None
    worker: Callable[[Database, int, Notify], AbstractContextManager[None]] = lambda *_: nullcontext()


class LocalService:
    """The service over a database in this process, which the owner closes; a person or API key acts as ``caller``.

    ``approval`` says which rubrics are drafts when they are added; ``collections_dir`` is that of the settings if None.
    ``over_http`` the caller is on another machine, and may not change where API keys are sent.
    """

    def __init__(
        self,
        db: Database,
        *,
        caller: str | None = None,
        approval: ApprovalPolicy = "generated",
        validators: Validators | None = None,
        collections_dir: Path | None = None,
        over_http: bool = False,
    ) -> None:
        self.address = db.url
        self.db, self.caller, self.approval = db, caller, approval
        self.validators = validators or Validators()
        self.prompts = Prompts(db)
        if caller is not None:
            name_of("the caller's name", caller)
        check, edit = self.validators.rubric, Edit(caller, policy=approval)
        self.imports = Imports(db, edit, check)
        self.completions, self.verdicts, self.labels = Completions(db), Verdicts(db), Labels(db)
        self.jobs = Jobs(db) if over_http else Jobs(db, self.validators.complete_answered)
        empty, compare = self.validators.empty_value, self.validators.reward_changes
        self.rubrics = Rubrics(
            db, edit, check=check, empty_value=empty, collections_dir=collections_dir, compare=compare
        )
        self.rewards = Rewards(db, edit, check)
        self.evolutions = Evolutions(db, edit, check)
        self.runs = Runs(db, edit, check=check, alarms=self.validators.alarms, signs=self.validators.signs)
        self.judges = Judges(db, self.validators.judge, on_machine=not over_http)
        self.keys, self.workers = Keys(db), Workers(db)
        self.scoring = partial(self.validators.worker, db)
        """``scoring(job_id, notify)`` scores an open job in a block, where no other worker can receive it."""
