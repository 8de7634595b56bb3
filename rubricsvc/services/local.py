"""`LocalService`: every noun of the service in this process, with the methods that `Client` has over HTTP."""

from contextlib import closing
from functools import partial
from pathlib import Path

from rubricsvc.core.states import ApprovalPolicy
from rubricsvc.services import lazy
from rubricsvc.services.completions import Completions, Labels, Prompts, Verdicts
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.importing import Imports
from rubricsvc.services.jobs import Jobs, Rewards
from rubricsvc.services.judges import Judges
from rubricsvc.services.keys import Keys
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.services.runs import Runs
from rubricsvc.services.versions import Edit
from rubricsvc.services.workers import Workers
from rubricsvc.store import session
from rubricsvc.store.session import Database, name_of, open_database, sqlite_file

__all__ = ["LocalService", "open_database", "sqlite_file", "upgrade_schema"]


def upgrade_schema(url: str) -> tuple[str | None, str]:
    """Upgrade a database to the newest schema; return the one before (None: there was none) and the newest."""
    with closing(Database(url)) as db:
        file = sqlite_file(db.url)
        before = None if file is not None and not file.exists() else session.current_revision(db)
        session.upgrade(db)
    return before, session.revisions()[0]


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
        collections_dir: Path | None = None,
        over_http: bool = False,
    ) -> None:
        self.address = db.url
        self.db, self.caller, self.approval = db, caller, approval
        self.prompts = Prompts(db)
        if caller is not None:
            name_of("the caller's name", caller)
        edit = Edit(caller, policy=approval)
        self.imports = Imports(db, edit)
        self.completions, self.verdicts, self.labels = Completions(db), Verdicts(db), Labels(db)
        self.jobs, self.judges = Jobs(db, on_machine=not over_http), Judges(db, on_machine=not over_http)
        self.rubrics = Rubrics(db, edit, collections_dir=collections_dir)
        self.rewards, self.evolutions, self.runs = Rewards(db, edit), Evolutions(db, edit), Runs(db, edit)
        self.keys, self.workers = Keys(db), Workers(db)
        self.scoring = partial(lazy.worker_for, db)
        """``scoring(job_id, notify)`` scores an open job in a block, where no other worker can receive it."""
