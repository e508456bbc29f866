"""Every command, program and file in the user's documentation is tried as it is printed, in a directory and home of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

from detent.cli.app import COMMANDS, cli
from detent.executor.sandbox import probe, profile_of
from tests.docs.guides import ROOT, Block, Command, Host, Reader, blocks, commands, screen, words

DOCS = ROOT / "docs"
FOLLOWED = [ROOT / "README.md", DOCS / "quickstart.md", DOCS / "design.md", *sorted((DOCS / "how-to").glob("*.md"))]
WRITTEN = [*FOLLOWED, DOCS / "index.md", DOCS / "flow.md"]
CONTAINED = {"full", "full-rootless"}
"""Where untrusted code is run at all, unless a home says otherwise."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    started = Host()
    yield started
    started.close()


@pytest.mark.parametrize("page", FOLLOWED, ids=name)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, host: Host) -> None:
    text = page.read_text(encoding="utf-8")
    if "code: |" in text and profile_of(probe()) not in CONTAINED:
        pytest.skip("this machine cannot contain untrusted code")
    with closing(Reader(tmp_path, text, host)) as reader:
        reader.follow()


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        place, _, heading = link.partition("#")
        target = (page.parent / place) if place else page
        if not target.exists() or (heading and heading not in headings(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_command_and_option_in_a_sentence_exists(page: Path) -> None:
    """What stands in a block is run; what stands in a sentence is looked up."""
    sentences = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for written in re.findall(r"`detent ([a-z]+[^`\n]*)`", sentences):
        found = cli.get_command(click.Context(cli), written.split()[0])
        options = {option for parameter in found.params for option in parameter.opts} if found else set()
        if found is None or not set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", written)) <= {*options, "-h", "--help"}:
            wrong.append(written)
    assert wrong == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_target_of_make_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named - targets == set()


def test_every_how_to_page_is_on_the_map_and_every_page_beside_it() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)", (DOCS / "index.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    inner = {page for page in pages if page.startswith(("contracts/", "decisions/")) and not page.endswith("README.md")}
    assert pages - inner - {"index.md"} - linked == set()


def test_the_pages_show_the_commands_that_run_and_look() -> None:
    typed = {
        command.line.split()[1]
        for page in FOLLOWED
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language.startswith("console")
        for command in commands(block)
        if command.line.startswith("detent ")
    }
    work = {"init", "validate", "plan", "run", "cancel", "retry", *COMMANDS["Look"]}
    assert {*work, "export", "verify", "replay", "erase", "doctor"} - typed == set()


# -- the reader itself: it must be able to say no ------------------------------------------------------------------------


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path, "")


def test_other_words_other_order_and_words_too_many_are_refused(reader: Reader) -> None:
    reader.compare("one two\n", "one\n  two\n", "here")
    for said in ("one", "two one", "one two three", "zero one two", ""):
        with pytest.raises(AssertionError, match="here printed"):
            reader.compare("one two\n", said, "here")


def test_dots_stand_for_any_lines_but_not_for_what_is_written(reader: Reader) -> None:
    reader.compare("one\n...\nthree\n...\n", "one\ntwo\nthree\nfour\n", "here")
    reader.compare("...\nthree\n", "one\nthree\n", "here")
    for said in ("one\ntwo\n", "two\nthree\n"):
        with pytest.raises(AssertionError):
            reader.compare("one\n...\nthree\n...\n", said, "here")
    with pytest.raises(AssertionError):
        reader.compare("...\nthree\n", "three\nfour\n", "here")


def test_an_id_is_the_same_thing_wherever_it_stands(reader: Reader) -> None:
    first, second, third, fourth = (f"sums-{letter * 10}" for letter in "abcd")
    reader.compare(f"run {first} after {second}", f"run {third} after {fourth}", "here")
    reader.compare(f"show {first}", f"show {third}", "here")
    for page, said in ((first, fourth), (f"sums-{'e' * 10}", third)):
        with pytest.raises(AssertionError):
            reader.compare(page, said, "here")


def test_a_command_that_names_an_id_out_of_nowhere_is_refused(reader: Reader) -> None:
    with pytest.raises(AssertionError, match="which nothing printed before"):
        reader.run(Command(f"detent show sums-{'a' * 10}"), 1)


def test_a_command_that_fails_is_refused_unless_the_page_says_so(reader: Reader) -> None:
    reader.type(Block("console", "$ false\n$ echo $?\n1\n", 1))
    with pytest.raises(AssertionError, match="`false` ended with 1"):
        reader.type(Block("console", "$ false\n$ true\n", 1))
    with pytest.raises(AssertionError, match="is 1"):
        reader.type(Block("console", "$ false\n$ echo $?\n2\n", 1))


def test_what_varies_is_alike_and_what_does_not_is_not() -> None:
    assert words("04:05:06 done in 0.3s") == words("11:12:13 done in 1m 12s")
    assert words("It ran, in 34 ms.") == words("It ran, in 7 ms.")
    assert words("its limit of 500 ms") != words("its limit of 400 ms")
    assert words("1 run, 2 reused") != words("2 run, 1 reused")


def test_a_block_that_is_drawn_over_itself_is_read_as_it_stands_at_the_end() -> None:
    written = "\x1b[1mtwo\x1b[0m\r\nlonger\r\n\r\x1b[2A\r\nshort\x1b[K\r\n\x1b[Jend\r\n"
    assert screen(written) == "two\nshort\nend\n"


def headings(page: str) -> set[str]:
    """The anchors of a page."""
    return {
        re.sub(r"[^a-z0-9 _-]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
