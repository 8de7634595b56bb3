"""Pages of Debian packages: of a small dpkg database."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import Collection, FaultyDocuments, Page
from rubricsvc.collections.sources import read_package
from rubricsvc.collections.tasks import synthesize
from rubricsvc.errors import InvalidError, NotFoundError, UnavailableError

pytestmark = pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no dpkg-query")

NAVIGATION = '<div class="navheader"><div>Home</div><a href="index.html">Next</a></div>'
VACUUM = f"""<html><head><title>5.1. VACUUM — Thing 3.1 documentation</title></head><body>{NAVIGATION}
<h1>VACUUM<a class="headerlink" href="#top">¶</a></h1>
<p>VACUUM is a command that makes a file as small as what it holds, see <a href="dir/page.html#size">page size</a>.</p>
<p>As of PostgreSQL 14, the command also takes the parallel option for its indexes. A dead row is a version of a row
that no transaction can see.</p><button>hide</button>
<div role="navigation"><a href="dir/page.html">related</a></div><div id="footer"><div>Last</div> updated</div></body>"""
FILES = {
    "index.html": "<title>Thing</title><p>All pages of the thing.",
    "vacuum.html": VACUUM,
    "dir/page.html": "<title>Page size</title><p>The page size is the number of bytes of one page of a file.",
    "bookindex.html": (
        '<dl><dt>dead row, <a href="vacuum.html#dead">VACUUM</a>, <a href="dir/page.html">Page size</a></dt></dl>'
    ),
    "genindex-D.html": '<ul><li><a href="dir/page.html#x">page of a file</a>, <a href="vacuum.html">[1]</a></li></ul>',
    "search.html": "<p>Search here.",
    "style.css": "p {}",
}
STATUS = """\
Package: {name}
Status: {status}
Maintainer: A. Packager <packager@example.org>
Architecture: all
Version: 1
Description: documentation
{more}
"""


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a dpkg database of four packages, of which ``thing-doc-15`` has the HTML."""
    root, admin = tmp_path / "usr" / "html", tmp_path / "dpkg"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    installed = "install ok installed"
    packages = [
        ("thing-doc-15", installed, ""),
        ("thing-doc-9", installed, ""),
        ("program", installed, ""),
        ("removed-doc", "deinstall ok config-files", ""),
    ]
    (admin / "info").mkdir(parents=True)
    (admin / "updates").mkdir()
    text = "".join(STATUS.format(name=name, status=status, more=more) for name, status, more in packages)
    (admin / "status").write_text(text)
    for name, *_ in packages:
        listed = [root, *(root / file for file in FILES)] if name == "thing-doc-15" else [root]
        (admin / "info" / f"{name}.list").write_text("".join(f"{path}\n" for path in listed))
    monkeypatch.setenv("DPKG_ADMINDIR", str(admin))
    return admin


def pages_of(package: str) -> dict[str, Page]:
    faults = FaultyDocuments()
    found = {page.id: page for page in read_package(package, faults).pages}
    assert not faults.count, faults.messages
    return found


def test_read_package_finds_the_package_that_a_name_stands_for(admin: Path) -> None:
    for package in ["thing-doc-15", "thing-doc"]:
        assert sorted(pages_of(package)) == ["dir/page", "index", "vacuum"]


def test_read_package_keeps_links_and_terms_apart_from_the_text(admin: Path) -> None:
    pages = pages_of("thing-doc")
    page = pages["vacuum"]
    assert (page.title, page.text.split("\n")[0]) == ("VACUUM", "VACUUM")
    assert [(page.text[link.start : link.end], link.target) for link in page.links] == [("page size", "dir/page")]
    for navigation in ("Home", "Next", "¶", "hide", "related", "updated"):
        assert navigation not in page.text
    assert page.terms == ("dead row", "page of a file")
    assert pages["dir/page"].terms == ("dead row", "page of a file")


def test_read_package_refuses_what_is_not_installed_or_has_no_html(admin: Path) -> None:
    for package, error in [("absent-doc", NotFoundError), ("removed-doc", NotFoundError), ("program", InvalidError)]:
        with pytest.raises(error) as raised:
            read_package(package, FaultyDocuments())
        assert package in str(raised.value)


def test_read_package_refuses_a_machine_without_dpkg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError):
        read_package("thing-doc", FaultyDocuments())


def made(folder: Path, package: str) -> Iterator[Collection]:
    faults = FaultyDocuments()
    collections.add(folder, "thing", read_package(package, faults).pages, faults, source="a test")
    with Collection(folder, "thing") as opened:
        yield opened


def test_synthesize_defines_terms_of_the_index_and_finds_changes_in_prose(admin: Path, tmp_path: Path) -> None:
    for opened in made(tmp_path / "collections", "thing-doc"):
        assert opened.open("vacuum").terms == ("dead row", "page of a file")
        tasks = {task.id: task for task in synthesize(opened, ["define", "changes"])}
    assert set(tasks) == {"define-vacuum", "define-vacuum-dead row", "define-dir/page", "changes-vacuum-14"}
    task = tasks["define-vacuum-dead row"]
    assert task.pages == (("vacuum",),)
    (source,) = task.rubric.by_key["definition"].sources or ()
    assert source.passage == "A dead row is a version of a row that no transaction can see."
