import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import MAX_PART_CHARS, Collection, FaultyDocuments, Link, NearCopies, Page, split
from rubricsvc.collections.sources import MAX_DOCUMENT_BYTES, HtmlText, python_pages, read
from rubricsvc.core.fingerprint import shingles
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError

OPENED = ExitStack()


@pytest.fixture(scope="module", autouse=True)
def close_collections() -> Iterator[None]:
    yield
    OPENED.close()


def added(folder: Path, *pages: Page, name: str = "some", **options: bool) -> Collection:
    collections.add(folder, name, pages, FaultyDocuments(), source="a test", **options)
    return OPENED.enter_context(Collection(folder, name))


def page(id_: str, text: str = "Some text.", title: str = "") -> Page:
    return Page(id_, title or id_, text, place=f"place of {id_}")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return added(tmp_path_factory.mktemp("collections"), *python_pages())


@given(st.text(alphabet="ab. \n#=-") | st.text())
def test_split_keeps_the_text(text: str) -> None:
    parts = list(split(text))
    assert "".join(parts) == text and all(parts)


def test_split_cuts_long_paragraphs_and_begins_a_part_with_a_heading() -> None:
    assert max(map(len, split("word " * 5000))) <= MAX_PART_CHARS and len(list(split("x" * 10_000))) > 3
    assert [part.split()[0] for part in split("One.\n\nTitle\n=====\n\nTwo.\n\n# Next\n\nThree.")] == [
        "One.",
        "Title",
        "#",
    ]


def test_collection_gives_back_documents_as_they_were(python: Collection) -> None:
    pages = {one.id: one for one in python_pages()}
    assert len(pages) == 79 == python.info.documents
    assert all(python.open(id_) == one for id_, one in pages.items())


def test_search_finds_the_document_with_its_best_part(python: Collection) -> None:
    best, *others = python.search("assert statement debugging assertions", 3)
    assert best.id == "assert" and "debugging assertions" in best.text
    assert best.score > others[0].score and len(others) == 2


def test_search_takes_syntax_as_text(python: Collection) -> None:
    for query in ('"', "a AND (", "NEAR(", "title: x", "^*", "-", "", " ", "\x00", "'); DROP TABLE x", "é" * 9999):
        python.search(query)
        python.ranked_parts(query, ["assert"])


def test_ranked_parts_are_all_parts_of_the_documents_best_first(python: Collection) -> None:
    parts = python.ranked_parts("yield from a generator", ["yield", "compound", "no such document"])
    assert {part.document for part in parts} == {"yield", "compound"}
    text = python.open("compound").text
    assert sum(len(part.text) for part in parts if part.document == "compound") == len(text)
    assert all(text[part.start :].startswith(part.text) for part in parts if part.document == "compound")


def test_digest_is_that_of_the_content_in_any_order(tmp_path: Path) -> None:
    one = added(tmp_path, page("a"), page("b"), name="one")
    two = added(tmp_path, page("b"), page("a"), name="two")
    three = added(tmp_path, page("a"), page("b", "Some text!"), name="three")
    assert one.digest == two.digest != three.digest


def test_links_of_python_lead_to_pages_with_the_heading(python: Collection) -> None:
    links = [(one, link) for one in map(python.open, python.ids()) for link in one.links]
    assert len({(one.id, link.start) for one, link in links}) >= 30
    for one, link in links:
        mentioned = " ".join(one.text[link.start : link.end].split())
        assert mentioned in python.open(link.target).text and link.target != one.id


def test_add_leaves_a_collection_of_that_name_alone(tmp_path: Path) -> None:
    added(tmp_path, page("a"))
    with pytest.raises(ConflictError):
        added(tmp_path, page("b"))
    assert added(tmp_path, page("b"), replace=True).ids() == ["b"] and collections.names(tmp_path) == ["some"]
    collections.delete(tmp_path, "some")
    assert collections.names(tmp_path) == []
    with pytest.raises(NotFoundError):
        collections.delete(tmp_path, "some")


def test_add_refuses_names_that_are_no_file_names(tmp_path: Path) -> None:
    for name in ("", "..", "../x", "a/b", "a b", "-x", "x" * 101, "naïve", "a\n"):
        with pytest.raises(InvalidError):
            added(tmp_path, page("a"), name=name)


@pytest.mark.parametrize(
    ("pages", "place"),
    [
        ([page("a"), page("a", "Other.")], "place of a"),
        ([page("a"), page("b", " \n")], "place of b"),
        ([page("a"), page("b[1]")], "place of b[1]"),
        ([page("a"), page("b\u202e")], "place of b\u202e"),
        ([page("a"), page("b" * 201)], "place of bbb"),
    ],
)
def test_add_is_whole_or_not_at_all(tmp_path: Path, pages: list[Page], place: str) -> None:
    with pytest.raises(InvalidError) as caught:
        added(tmp_path, *pages)
    assert place in caught.value.message and collections.names(tmp_path) == []
    assert list(tmp_path.iterdir()) == [] and added(tmp_path, *pages, skip_invalid=True).ids() == ["a"]


def pages_at(path: Path, **options: str) -> tuple[dict[str, Page], list[str]]:
    faults = FaultyDocuments()
    found = {one.id: one for one in read(path, faults, **options).pages}
    return found, faults.messages


def test_read_takes_the_documents_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("hidden")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "one.txt").write_bytes("\ufeffFirst line\r\nNext.".encode())
    (tmp_path / "sub" / "two.md").write_text(
        "Intro [one](../one.txt#x 'T'), [away](https://a.b/c), ![no](../one.txt).\n\n# Two\n"
    )
    (tmp_path / "utf16.txt").write_bytes("Größe".encode("utf-16"))
    (tmp_path / "utf32.txt").write_bytes("Größe".encode("utf-32"))
    found, faults = pages_at(tmp_path)
    assert list(found) == ["one.txt", "sub/two.md", "utf16.txt", "utf32.txt"] and not faults
    assert (found["one.txt"].title, found["one.txt"].text) == ("First line", "First line\nNext.")
    two = found["sub/two.md"]
    assert two.title == "Two" and two.links == (Link(6, 29, "one.txt"),)
    assert found["utf16.txt"].text == found["utf32.txt"].text == "Größe"


def test_read_says_which_documents_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 au lait")
    (tmp_path / "large.txt").write_bytes(b"x" * (MAX_DOCUMENT_BYTES + 1))
    (tmp_path / "good.txt").write_text("good")
    found, faults = pages_at(tmp_path)
    assert list(found) == ["good.txt"]
    assert ["bad.txt" in faults[0] and "byte 3" in faults[0], "large.txt" in faults[1]] == [True, True]
    assert pages_at(tmp_path / "bad.txt", encoding="latin-1")[0]["bad.txt"].text == "café au lait"
    for path in (tmp_path / "no", tmp_path / "good.txt" / "x"):
        with pytest.raises(NotFoundError):
            pages_at(path)
    with pytest.raises(InvalidError):
        pages_at(tmp_path, encoding="no-such")


def test_read_refuses_encodings_that_no_page_has(tmp_path: Path) -> None:
    for name in ("rot13", "hex", "punycode", "idna", "unicode_escape", "utf-7", "undefined", "no-such"):
        (tmp_path / "page.html").write_text(f"<meta charset={name}><p>text")
        found, (fault,) = pages_at(tmp_path)
        assert not found and name in fault


def test_read_gives_up_on_a_page_whose_tags_never_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in ["<a ", "<!--", "<?", "</"]:
        monkeypatch.setattr("rubricsvc.collections.sources.MAX_SECONDS", 0.05)
        (tmp_path / "broken.html").write_text("<p>text " + broken * 30_000)
        (tmp_path / "sound.html").write_text("<p>text")
        found, (fault,) = pages_at(tmp_path)
        assert list(found) == ["sound.html"] and "broken.html" in fault


def test_html_text_leaves_out_navigation() -> None:
    pages = (
        '<div class="navheader"><div>up</div>next</div><p>text',
        '<p>text<a class="headerlink" href="#x">¶</a>',
        "<nav><nav>a</nav>b</nav><p>text<button>hide</button><select><option>x</select>",
        '<div role="search">find</div><p>text<div id="footer"><div>a</div>b</div>',
    )
    assert {HtmlText(page).text for page in pages} == {"text"}
    assert HtmlText("<p>navigation is a word").text == "navigation is a word"


def test_read_refuses_a_folder_without_documents_and_files_of_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        pages_at(tmp_path)
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(InvalidError):
        pages_at(tmp_path / "a.pdf")


def test_read_takes_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = [{"id": "a", "text": "A.", "title": "T", "url": "x"}, {"_id": 7, "text": "B."}]
    bad = [
        "[1]", "{", '{"id": "c"}', '{"id": null, "text": "x"}', '{"id": true, "text": "x"}',
        '{"id": "d", "text": "\\u0000"}',
    ]  # fmt: skip
    path.write_text("\n".join([*map(json.dumps, good), "", *bad, json.dumps({"id": "e", "title": 3, "text": "x"})]))
    found, faults = pages_at(path)
    assert {id_: (one.title, one.text) for id_, one in found.items()} == {"a": ("T", "A."), "7": ("B.", "B.")}
    assert [fault.split(", line ")[1].split(":")[0] for fault in faults] == ["4", "5", "6", "7", "8", "9", "10"]


@given(st.text() | st.text(alphabet="<>/a href='main!-[]&#;pre "))
def test_html_text_fails_on_no_page(text: str) -> None:
    page = HtmlText(text)
    assert all(0 <= start < end <= len(page.text) for start, end, _ in page.links)


WORDS = [f"word{number}" for number in range(200)]
SECTION, REST = " ".join(WORDS[:60]), " ".join(WORDS[60:])


def test_near_copies_have_most_of_a_page_or_are_mostly_in_it(tmp_path: Path) -> None:
    pages = [
        Page("section", "Section", SECTION),
        Page("chapter", "Chapter", f"Before. {SECTION.upper()}! {REST}"),
        Page("quoting", "Quoting", f"{' '.join(WORDS[:20])} {' '.join(reversed(WORDS))}"),
        Page("marks", "Marks", "*** !!!"),
    ]
    collections.add(tmp_path, "docs", pages, FaultyDocuments(), source="a test")
    with collections.Collection(tmp_path, "docs") as docs:
        copies = NearCopies(docs)
    assert copies.of("section") == {"chapter"}
    assert (copies.count(shingles(SECTION)), copies.count(shingles("nowhere"))) == (2, 0)
    assert copies.of("chapter") == {"section"}
    assert copies.of("quoting") == copies.of("marks") == copies.of("absent") == frozenset()
