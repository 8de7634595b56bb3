"""Wire types of judges."""

from pydantic import Field
from pydantic.config import JsonDict

from rubricsvc.core.audit import Repeatability, StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.base import Stored, Wire, example

_ENDPOINT: JsonDict = {"base_url": "http://127.0.0.1:8000/v1"}


class NewJudge(Wire):
    """A judge to store."""

    model_config = example({"judge": {"name": "local-vllm", "model": "Qwen/Qwen3-8B", "endpoint": _ENDPOINT}})

    judge: Judge = Field(description="The judge.")
    passport: Passport | None = Field(None, description="Passport of a trained judge.")


class StoredJudge(Stored):
    """A stored judge."""

    name: str = Field(description="Name of the judge.")
    digest: str = Field(description="SHA-256 of everything but names and endpoints.")
    judge: Judge | None = Field(description="Null if what is stored is not valid any more.")
    error: str | None = Field(None, description="What is not valid, and the command that corrects it.")
    repeatability: Repeatability | None = Field(None, description="Result of the last measurement.")
    has_passport: bool = Field(False, description="Whether there is a passport, at /v1/judges/{ref}/passport.")
    audit: str | None = Field(None, description="Result of the newest audit, with its day.")
    newest_audit: StoredAudit | None = Field(None, description="The newest audit, where one judge is asked for.")

    @property
    def value(self) -> Judge:
        """The judge, to ask it; an InvalidError if what is stored is not valid any more."""
        if self.judge is None:
            raise InvalidError(f"judge {self.name!r} is not valid", hint=self.error or "")
        return self.judge
