"""Methods of writing a rubric: a template in ``prompts/``, and a function that gathers what it shows.

To add one, write a coroutine that renders what its template needs and asks the author, name it in ``METHODS``, and add
its name to `rubricsvc.core.generation.Method`.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace

from rubricsvc.core.generation import AuthoringTask, Method, SourceText
from rubricsvc.core.prompt import steps_of
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.untrusted import clean
from workers.authoring.author import Author, Draft, GenerationError, rubric_reader, sha256_of
from workers.authoring.research import grounded
from workers.authoring.templates import SMALL_MODELS, documents_of, shown, shown_all

MESSAGE_CHARS = 3000
"""Characters of a message of a trajectory that are shown; of a longer one the beginning and the end."""


async def write_rubric(author: Author, task: AuthoringTask) -> Draft:
    """Return the rubric that the method of the author's settings writes."""
    return await METHODS[author.generation.method](author, task)


def _values(task: AuthoringTask, **blocks: str) -> dict[str, str]:
    """Return the values of a template: the prompt, its documents if any, and blocks of the method."""
    values = {"prompt": shown("question", task.prompt.text), **blocks}
    if documents := documents_of(task.prompt):
        values["documents"] = shown_all("document", documents)
    return values


async def one_shot(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric that is written from the prompt alone, and the documents that come with it."""
    template = "list" if author.judge.model in SMALL_MODELS else "one_shot"
    return await author.write(template, _values(task), documents_of(task.prompt))


async def reference_guided(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of what makes the reference answers good completions."""
    if not task.references:
        policy = author.generation.references
        among = f" and no completion of policy {policy!r}" if policy else ""
        raise GenerationError("no_reference", f"the prompt has no reference{among}")
    references = {f"reference {number}": text for number, text in enumerate(task.references, start=1)}
    values = _values(task, references=shown_all("reference", references))
    return await author.write("reference_guided", values, documents_of(task.prompt) | references)


async def contrastive(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of what the better completions do, and of the faults of the worse ones."""
    if task.contrast is None:
        settings = author.generation
        policies = f"the policies {settings.better!r} and {settings.worse!r} have no two different completions"
        unknown = "no two completions of the prompt have different overall labels, or different rewards in a job"
        raise GenerationError("no_contrast", policies if settings.better else unknown)
    better, worse = (
        {f"{name} {number}": one.text for number, one in enumerate(side, start=1)}
        for name, side in (("better", task.contrast.better), ("worse", task.contrast.worse))
    )
    values = _values(task, better=shown_all("answer", better), worse=shown_all("answer", worse))
    return await author.write("contrastive", values, documents_of(task.prompt), better | worse)


async def traces(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of what agents do well and badly in their trajectories."""
    if not task.trajectories:
        raise GenerationError("no_trajectory", "no completion of the prompt has messages with tool calls")
    texts, scores, half = dict[str, str](), list[str](), MESSAGE_CHARS // 2
    for number, (completion, score) in enumerate(task.trajectories, start=1):
        messages = list[str]()
        for place, step in enumerate(steps_of(completion), start=1):
            for message in step:
                text = message.text
                if (omitted := len(text) - MESSAGE_CHARS) > 0:
                    text = f"{text[:half]}\n[{omitted} characters are left out here]\n{text[-half:]}"
                messages.append(f"step {place}, {message.role}:\n{text}")
        texts[f"trajectory {number}"] = "\n\n".join(messages)
        scores += [f"trajectory {number}: {score:.3g}"] if score is not None else []
    values = _values(task, trajectories=shown_all("trajectory", texts))
    if scores:
        values["scores"] = "\n".join(scores)
    return await author.write("traces", values, documents_of(task.prompt), texts)


async def principles(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric of the clauses of a specification that matter for the prompt; each criterion cites its own."""
    specification = task.specification
    if specification is None or not (clauses := clauses_of(clean(specification.text or "").text)):
        raise GenerationError("no_specification", "the settings have no specification, or it has no clauses")
    values, documents = _values(task, clauses=shown_all("clause", clauses)), documents_of(task.prompt)
    parse = rubric_reader("principles", documents, clauses)

    def reader(text: str, truncated: bool) -> Rubric:
        """Return the rubric in a reply: each of its criteria cites a clause, as a source in the specification."""
        rubric, criteria = parse(text, truncated), []
        for number, one in enumerate(rubric.criteria):
            sources = one.sources or ()
            if not any(source.document in clauses for source in sources):
                raise ValueError(f"criteria.{number}.sources: expected a clause, as document, with a passage of it")
            named = {"document": specification.name}
            cited = [
                source.model_copy(update=named | {"clause": source.document}) if source.document in clauses else source
                for source in sources
            ]
            criteria.append(one.model_copy(update={"sources": tuple(cited)}))
        return rubric.model_copy(update={"criteria": tuple(criteria)})

    draft = await author.write("principles", values, documents, clauses, reader=reader)
    source = SourceText(name=specification.name, digest=sha256_of(specification.text or ""))
    return replace(draft, sources=(source, *(one for one in draft.sources if one.name not in clauses)))


METHODS: Mapping[Method, Callable[[Author, AuthoringTask], Awaitable[Draft]]] = {
    "one-shot": one_shot,
    "reference-guided": reference_guided,
    "contrastive": contrastive,
    "principles": principles,
    "traces": traces,
    "grounded": grounded,
}


_NAME_CHARS = 120
_HEADING = re.compile(r"#{1,6}[ \t]+(\S.*?)[ \t#]*")
_NUMBER = re.compile(r"[ \t]{0,3}((?:§[ \t]?)?\d{1,3}(?:\.\d{1,3})*|\([a-z\d]{1,3}\))[.):]?[ \t]+\S.*")
_CODE = re.compile(r"[ \t]{0,3}(?:```|~~~)")


def clauses_of(text: str) -> dict[str, str]:
    """Return the clauses in order, by name. Headings without a text of their own are left out.

    A clause begins at a Markdown heading, whose text is its name, or at a number at the start of a line: then it has
    the heading's name and the number. Without either, each paragraph is a clause. A name that comes again is counted.
    """
    found = list(_marked(text))
    if len(found) < 2:
        paragraphs = [one.strip() for one in re.split(r"\n[ \t]*\n", text) if one.strip()]
        return {f"paragraph {number}": one for number, one in enumerate(paragraphs, start=1)}
    clauses: dict[str, str] = {}
    for name, lines in found:
        body = "\n".join(lines).strip()
        if not body or (_HEADING.fullmatch(lines[0]) and not "".join(lines[1:]).strip()):
            continue
        key, again = name, 1
        while key in clauses:
            again += 1
            key = f"{name} ({again})"
        clauses[key] = body
    return clauses


def _marked(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, lines) of each part that begins with a heading or a number; what comes before is the preamble."""
    heading, name, lines, in_code = "", "preamble", list[str](), False
    for line in text.splitlines():
        in_code ^= bool(_CODE.match(line))
        title, number = _HEADING.fullmatch(line), _NUMBER.fullmatch(line)
        if in_code or not (title or number):
            lines.append(line)
            continue
        if lines:
            yield name, lines
        if title:
            heading = " ".join(title[1].split())[:_NAME_CHARS]
        name = heading if title else " ".join(filter(None, (heading, number[1] if number else "")))
        lines = [line]
    yield name, lines
