import pytest

from rubricsvc.core.prompt import Completion, Document, Prompt
from workers.checks.citations import Cites, Copied, Quotes, Supported, cites, copied, quotes, supported

PROMPT = Prompt.of(
    "How does addition work?",
    documents=(
        Document(id="numeric-types", text="These methods are called to implement the binary arithmetic\n  operations."),
        Document(id="doc 2", text="If one of those methods doesn’t support the operation — it should return it."),
    ),
)


@pytest.mark.parametrize(
    ("text", "minimum", "value"),
    [
        ("So it is [numeric-types].", 1, 1), ("So [numeric-types] and [doc 2].", 2, 1),
        ("So [numeric-types; doc 2].", 2, 1), ("So [numeric-types].", 2, 0.5),
        ("So [numeric-types], [numeric-types].", 2, 0.5), ("So [numeric-types] and [invented].", 1, 0.5),
        ("So [1].", 1, 0), ("So it is.", 1, 0), ("", 1, 0),
        ("a[i] = b(x)[0], `[j]`, [link](http://x) and\n```\n[k]\n```\n[numeric-types]", 1, 1),
        ("[some remark of mine] [numeric-types]", 1, 1), ("“So it is [1]” [numeric-types].", 1, 1),
        ("“So it is [numeric-types].”", 1, 1), ("“So it is” [1] [numeric-types].", 1, 0.5),
    ],
)  # fmt: skip
def test_cites(text: str, minimum: int, value: float) -> None:
    assert cites(Completion(text=text), PROMPT, Cites(min=minimum)) == value


@pytest.mark.parametrize(
    ("text", "args", "value"),
    [
        ('It says "called to implement the binary arithmetic operations."', {}, 1),
        ("It says “Called to  implement the Binary arithmetic operations”", {}, 1),
        ("""It says "methods doesn't support the operation - it should".""", {}, 1),
        ('It says "called to implement the unary operations".', {}, 0),
        ('"implement the binary arithmetic" and "this is made up entirely"', {}, 0.5),
        ('"implement the binary arithmetic"', {"min": 2}, 0.5),
        ('"plement the binary arithmetic operations"', {}, 0),
        ('"to implement the binary arith"', {}, 0),
        ('"binary arithmetic"', {}, 0),
        ('"binary arithmetic"', {"words": 2}, 1),
        ('an inch is 1" and\n\nnothing "implement the binary arithmetic"', {}, 1),
        ("", {}, 0),
    ],
)
def test_quotes(text: str, args: dict[str, int], value: float) -> None:
    given = Quotes.model_validate({"cited": False, **args})
    assert quotes(Completion(text=text), PROMPT, given).value == value


def test_cites_and_quotes_score_0_without_documents() -> None:
    bare = Prompt.of("q")
    text = Completion(text='"implement the binary arithmetic" [numeric-types]')
    assert cites(text, bare, Cites()) == 0
    assert quotes(text, bare, Quotes()).value == quotes(text, bare, Quotes(cited=False)).value == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('It says "implement the binary arithmetic operations" [numeric-types].', 1),
        ('As [numeric-types] says, "implement the binary arithmetic operations".', 1),
        ('It says "implement the binary arithmetic operations" [doc 2].', 0),
        ('It says "implement the binary arithmetic operations".', 0),
        ('"to implement the binary arithmetic" [numeric-types] and "it should return it" [doc 2].', 1),
        ('"to implement the binary arithmetic" [doc 2] and "it should return it" [doc 2].', 0.5),
        ('It says "implement the binary arithmetic operations" [numeric-types] [doc 2].', 1),
        ('It says "implement the binary arithmetic operations" [doc 2] [other] [numeric-types].', 0),
        ('It says "implement the binary arithmetic operations". See [doc 2], [other], [numeric-types].', 0),
    ],
)
def test_quotes_needs_the_passage_in_the_document_cited(text: str, value: float) -> None:
    assert quotes(Completion(text=text), PROMPT, Quotes()).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"These methods are called to implement the binary arithmetic operations." [numeric-types]', 1),
        ('"Methods are called to implement the binary arithmetic operations" [numeric-types], it says.', 0.9),
        ('"These methods are called to implement" [numeric-types]', 0.6),
        ('"It is called to implement the binary" [numeric-types]', 0),
        ('"These methods are called to implement" [numeric-types] and "one of those methods doesn’t" [doc 2]', 0.6),
        ('"These methods are called to implement" [numeric-types] and "one of these methods doesn’t" [doc 2]', 0.3),
        ('"one of those methods doesn’t support the operation" [doc 2]', 0),
        ('"These methods are called to implement the binary arithmetic operations" [doc 2]', 0),
        ("These methods are called to implement the binary arithmetic operations [numeric-types]", 0),
    ],
)
def test_quotes_of_passages_counts_the_share_of_their_words(text: str, value: float) -> None:
    args = Quotes(passages=("These methods are called to implement the binary arithmetic operations.",))
    assert quotes(Completion(text=text), PROMPT, args).value == pytest.approx(value)


TRUE, FALSE = "to implement the binary arithmetic operations", "to implement the unary arithmetic operations"

ONE, OTHER = "to implement the binary arithmetic", "it should return it"


@pytest.mark.parametrize(
    "text",
    [
        "As {a} says: “{one}”. As {b} says: “{other}”.", "As {a} says: “{one}.” As {b} says: “{other}.”",
        "{a} “{one}” and {b} “{other}”", "According to {a}, “{one}”; according to {b}, “{other}”.",
        "“{one}” {a} and “{other}” {b}.", "“{one}.” {a} “{other}.” {b}", "“{one}.” {a} As {b} says: “{other}.”",
        "He says “{one}” {a}. As {b} says: “{other}”.", "As Smith et al. {a} say: “{one}”. As {b} says: “{other}”.",
        "- {a}: “{one}”\n- {b}: “{other}”", "- “{one}” {a}\n- “{other}” {b}", "{a} “{one}”. {b} “{other}”.",
    ],
)  # fmt: skip
def test_quotes_finds_the_citation_before_or_after_a_quotation(text: str) -> None:
    for (a, b), value in ((("[numeric-types]", "[doc 2]"), 1), (("[doc 2]", "[numeric-types]"), 0)):
        said = text.format(a=a, b=b, one=ONE, other=OTHER)
        for marks in (said, said.replace("“", '"').replace("”", '"')):
            assert quotes(Completion(text=marks), PROMPT, Quotes()).value == value


@pytest.mark.parametrize(
    "form",
    [
        "“{}”", '"{}"', "«{}»", "«\u00a0{}\u202f»", "»{}«", "„{}“", "„{}”", "‚{}‘", "“{}.”", "(„{}“)",
        "> {}", ">{}", "> “{}”", "> > {}", ">\n> {}\n>", "> {}\n> — the *manual*", "> {}\n>\n> -- the manual",
    ],
)  # fmt: skip
def test_quotes_reads_all_quotation_marks_and_blocks(form: str) -> None:
    for passage, value in ((TRUE, 1), (FALSE, 0)):
        text = f"He says [numeric-types]:\n\n{form.format(passage)}\n\nSo it goes. [doc 2]"
        assert quotes(Completion(text=text), PROMPT, Quotes(cited=False)).value == value
    text = f"Of this, one says\n{form.format(TRUE)}\n[numeric-types], and „it should return it“ [doc 2]."
    assert quotes(Completion(text=text), PROMPT, Quotes()).value == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"As [numeric-types] says:\n\n> {TRUE}\n\nBut then there is [doc 2].", 1),
        (f"> {TRUE}\n\n[numeric-types]", 1),
        (f"See:\n\n> {TRUE}\n\n— [numeric-types]\n\nAnd [doc 2].", 1),
        (f"> {TRUE} [numeric-types]", 1),
        (f"> {TRUE} [numeric-types].\n", 1),
        (f"> {TRUE}\n> — the manual [numeric-types]", 1),
        (f"> {TRUE}\n>\n> — [numeric-types]", 1),
        (f"> These methods are called\n> {TRUE}\n\n[numeric-types]", 1),
        (f"> These methods are called\n>\n> {TRUE}\n\n[numeric-types]", 1),
        (f"“{TRUE} [numeric-types].”", 1),
        (f"> {TRUE}\n\n[doc 2]", 0),
        (f"> {TRUE}", 0),
        (f"> {TRUE}\n\nA new paragraph, with a citation of its own [numeric-types].", 0),
        (f"> {TRUE} [numeric-types]\n\nBut:\n\n> {FALSE} [numeric-types]", 0.5),
    ],
)
def test_quotes_finds_the_citation_of_a_block_quote(text: str, value: float) -> None:
    assert quotes(Completion(text=text), PROMPT, Quotes()).value == value


@pytest.mark.parametrize(
    "text",
    [
        '```python\nprint("one two three four")\n```',
        ">>> one and two and three and four",
        "> [!NOTE]\n> This is only a note of ours.",
        "It’s ‘one two three four’, isn’t it?",
        "5 > 4, and so on and on",
    ],
)
def test_quotes_ignores_other_text(text: str) -> None:
    assert quotes(Completion(text=text), PROMPT, Quotes()).rationale == "0 of 0 quoted passages"


def test_citation_checks_read_long_texts() -> None:
    for piece in ("\n", " ", ">", "> \n", "“", "»", "„ ", "‚", '"', "[", "“a [b]", "—\n\n", "> [d]\n\n"):
        assert quotes(Completion(text=piece * (30_000 // len(piece))), PROMPT, Quotes()).value == 0


@pytest.mark.parametrize(
    ("text", "args", "value"),
    [
        ("These methods implement the arithmetic operations [numeric-types].", {}, 1),
        ("These methods implement the arithmetic operations. [numeric-types] Others do not do anything here.", {}, 0.5),
        ("These methods implement the arithmetic operations [numeric-types; other].", {}, 0),
        ("# A heading of many words here\n\nThese methods implement arithmetic operations [doc 2].", {}, 1),
        ("Yes. These methods implement the arithmetic operations [doc 2].", {}, 1),
        ("These methods implement arithmetic operations [doc 2]. Nobody said this sentence before.", {"min": 0.5}, 1),
        ("These methods implement binary operations [numeric-types].", {"overlap": 0.9}, 1),
        ("These methods implement binary operations [doc 2].", {"overlap": 0.9}, 0),
        ("Yes.", {}, 0),
        ("", {}, 0),
    ],
)
def test_supported(text: str, args: dict[str, float], value: float) -> None:
    assert supported(Completion(text=text), PROMPT, Supported.model_validate(args)).value == value


def trajectory(call: dict[str, object], content: str, answer: str, call_id: str | None = "c1") -> Completion:
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c0", "name": "search"}, {"id": "c1", **call}]},
        {"role": "tool", "content": "no results", **({"tool_call_id": "c0"} if call_id else {})},
        {"role": "tool", "content": content, **({"tool_call_id": call_id} if call_id else {})},
        {"role": "assistant", "content": answer},
    ]
    return Completion.model_validate({"messages": messages})


OPEN: dict[str, object] = {"name": "open", "arguments": {"id": "page-7"}}
PAGE = "The vacuum process reclaims storage occupied by dead tuples."
ANSWER = 'It says "reclaims storage occupied by dead tuples" [page-7].'


@pytest.mark.parametrize(
    ("call", "content", "value"),
    [
        (OPEN, PAGE, 1),
        ({"name": "open", "arguments": '{"id": "page-7", "page": 2}'}, PAGE, 1),
        ({"name": "fetch", "arguments": {}}, f'{{"id": "page-7", "text": "{PAGE}"}}', 1),
        ({"name": "search", "arguments": {}}, f'[{{"id": "page-7", "text": "{PAGE}"}}, {{"id": "x"}}, 1]', 1),
        ({"name": "open", "arguments": {"id": "page-8"}}, PAGE, 0),
        ({"name": "fetch", "arguments": {"id": "page-7"}}, PAGE, 0),
        (OPEN, '{"error": "no such document"}', 0),
        (OPEN, '{"status": 404, "detail": "reclaims storage occupied by dead tuples"}', 0),
        (OPEN, f'{{"id": "page-7", "text": "{PAGE}", "error": null}}', 1),
        (OPEN, " ", 0),
        ({"name": "open", "arguments": "page-7"}, PAGE, 0),
        ({"name": "open", "arguments": {"id": 7}}, PAGE, 0),
    ],
)
def test_citations_resolve_documents_that_the_policy_opened(
    call: dict[str, object], content: str, value: float
) -> None:
    for call_id in ("c1", None):
        completion = trajectory(call, content, ANSWER, call_id)
        assert cites(completion, Prompt.of("q"), Cites()) == value
        assert quotes(completion, Prompt.of("q"), Quotes()).value == value
        assert supported(completion, Prompt.of("q"), Supported()).value == value


def test_citations_of_documents_neither_given_nor_opened_do_not_count() -> None:
    completion = trajectory(OPEN, PAGE, "So it is said here [page-7] [numeric-types] [page-9].")
    assert cites(completion, PROMPT, Cites(min=2)) == pytest.approx(2 / 3)
    assert supported(completion, PROMPT, Supported()).value == 0


def test_quotes_rejects_a_sentence_spliced_from_two_parts() -> None:
    parts = [
        trajectory(OPEN, text, ANSWER).messages[:3] for text in ("In 1950 the new drug is", "never safe, they said.")
    ]
    answer = '"the new drug is never safe" [page-7]'
    completion = Completion(messages=(*parts[0], *parts[1]), text=answer)
    assert quotes(completion, Prompt.of("q"), Quotes(words=3)).value == 0


def test_checks_of_sources_read_scripts_without_blanks() -> None:
    prompt = Prompt.of("q").model_copy(
        update={"documents": (Document(id="tea", text="先把新鲜的水烧开，然后把茶叶放进壶里。"),)}
    )
    completion = Completion(text="文中说“把新鲜的水烧开”[tea]。")
    assert quotes(completion, prompt, Quotes()).value == 1
    assert supported(completion, prompt, Supported(overlap=0.5)).value == 1
    assert copied(completion, prompt, Copied(max=2, run=5)).value == 1
