"""Prose of the README, the docs and the source uses the terms of docs/glossary.md; that of docs in short lines."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "unfade"
LATER = ("methods/stacking.py", "models/tree", "io/tables.py", "io/csv_text.py")  # not yet worded so
CODE = [path for path in sorted(SOURCE.rglob("*.py")) if not path.relative_to(SOURCE).as_posix().startswith(LATER)]
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
FILES = sorted([*map(ROOT.joinpath, TOP), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")])

BANNED = {  # regular expression: what to write
    r"hangs? on|hang together|hung on": "depends on",
    r"told|said": "given, reported",
    r"besides?": "compared with",
    r"anew": "again",
    r"due(?! to\b)": "expected, nominal",
    r"covers? \.?\d\S* (?:of|for) \.?\d\S*": "coverage 0.816 (nominal 0.814)",
    r"as (?:it|they) (?:should|must) be": "within tolerance",
    r"truth values?": "booleans",
    r"watched|watches|no longer predicted better": "early stopping",
    r"candidates?": "proposals",
    r"pools?(?!\()": "proposals, sampling-importance-resampling",
    r"(?<!ensemble )members?": "ensemble members",
    r"recalibrat\w+": "calibration scale",
    r"surpris\w+": "outliers",
    r"(?<!detection )(?<!time )(?<!in the )limits?": "censored values, detection limits",
    r"pass(?:es)? through": "passthrough columns",
    r"what is odd": "warnings",
    r"trained by what it predicts": "masked prediction",
    r"whole numbers?": "integers",
    r"sharpness": "energy weight",
    r"(?:too )?sure of (?:itself|it)|surest|be far too sure|surer": "narrow intervals",
    r"(?:numbers?|levels?|draws?|values?|models?|one|microseconds|milliseconds|ms|seconds|bits|frames|rows|masks|steps?)"
    r" an? (?:row|column|draw|step|second|sample|cell|table|channel|setting|side|minute|model-step)": "per row, per column",
}

BANNED_IN_SOURCE = BANNED | {  # messages, help, labels and doc-strings of the program
    r"at the door": "when data are read",
    r"ha(?:s|ve) (?:its|their) say|speaks?(?: against)?": "name the check",
    r"what became of|on (?:its|their) way": "name the results",
    r"(?:too )?(?:un)?sure": "wide or narrow, uncertainty",
    r"(?:come|came|comes) back|as (?:it|they) (?:is|are|came)": "is passed through, unchanged, given",
    r"(?:can|cannot) be told|tells?": "identified",
    r"goes? on|go(?:es)? on with": "continue",
    r"beyond belief": "impossible",
    r"what is missing": "missing cells",
    r"whoever|(?:no|some|any)body": "the user",
}

# Names that the code has today and output that a program prints; each with the files it may stand in.
ALLOWED = dict.fromkeys(("scoreboard.md", "reproduction.md", "study.py", "tables.py"), ("coverage due",))


def paragraphs(text: str) -> list[str]:
    """Prose, a string for each run of lines: code blocks, code spans and targets of links left out."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?<=\n\n) {4,}\S.*(?:\n {4,}\S.*)*", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [re.sub(r"`[^`]*`", "`", " ".join(part.split())) for part in re.split(r"\n\s*\n", text)]


def prose_of(code: str) -> str:
    """Texts of a source file as paragraphs: doc-strings, and what users may see: literals of two words or more."""
    tree = ast.parse(code)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in ast.walk(tree):
        values = node.values if isinstance(node, ast.JoinedStr) else [node] if id(node) not in parts else []
        texts = [getattr(each, "value", "") if isinstance(each, ast.Constant) else "``" for each in values]
        text = "".join(part for part in texts if isinstance(part, str))
        found += [re.sub(r"^>>> .*$", "", text, flags=re.MULTILINE)] if " " in text.strip("`") else []
    return "\n\n".join(found)


def banned(text: str, name: str = "", phrases: dict[str, str] = BANNED) -> list[str]:
    """Each banned phrase of a text, with what to write in its place."""
    found = []
    for prose in paragraphs(text):
        for allowed in ALLOWED.get(name, ()):
            prose = prose.replace(allowed, "")
        for pattern, better in phrases.items():
            matches = re.finditer(rf"(?<![\w-])(?:{pattern})(?!\w)", prose, re.IGNORECASE)
            found += [
                f"{match.group()!r} -> {better}: ...{prose[max(0, match.start() - 40) : match.end() + 30]}"
                for match in matches
            ]
    return found


def too_long(text: str) -> list[str]:
    """Lines of prose over 120 characters: not those of tables, code blocks and pictures, targets of links not counted."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "!["))]
    return [line for line in lines if len(re.sub(r"\]\([^)]*\)", "]", line)) > 120]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_prose_uses_the_terms_of_the_field(path):
    assert not banned(path.read_text(), path.name)


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_texts_of_the_program_use_the_terms_of_the_field(path):
    assert not banned(prose_of(path.read_text()), path.name, BANNED_IN_SOURCE)


def test_texts_of_the_program_are_found():
    code = 'def f(a):\n    """Check at the door."""\n    raise E(f"Column {a} " "is not due.")\n\n\nx = "due"  # due\n'
    assert len(banned(prose_of(code), "", BANNED_IN_SOURCE)) == 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_lines_of_prose_are_short(path):
    assert not too_long(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path):
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        other = path.parent / file if file else path
        if other.parent.name == "gallery" and other.suffix == ".md":  # made from a Python file, and a list of all
            other = other.with_suffix(".py") if other.stem != "index" else other.parent
        assert other.exists(), target
        headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [
            re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings
        ], target


def test_the_readme_begins_with_the_words_that_people_search_for():
    first = (ROOT / "README.md").read_text().split("![")[0].lower()
    assert all(
        word in " ".join(first.split()) for word in ("missing data", "multiple imputation", "denoising", "uncertainty")
    )


def test_the_glossary_is_linked_and_in_alphabetical_order():
    terms = re.findall(r"^\*\*(.+?)\.\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 30
    assert terms == sorted(terms, key=str.lower)
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text()
    assert "(glossary.md)" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize(
    "phrase",
    [
        "Draws hang on\nthe row.", "It was told the level.", "Scores beside others.", "It begins anew.", "0.814 is due.",
        "It covers .816 of .814.", "All is as it should be.", "Truth values.", "Training is watched.",
        "From 200 candidates.", "A pool of z.", "Four members.", "Recalibration.", "Surprises first.",
        "Limits of columns.", "Text passes through.",
        "Trained by what it predicts.", "Whole numbers.", "One number a column.", "| frames a second |",
    ],
)  # fmt: skip
def test_a_banned_phrase_is_found(phrase):
    assert banned(f"# Title\n\nGood prose.\n{phrase}\n")


def test_code_and_terms_of_the_field_are_allowed():
    text = "`members=4` fits ensemble members; a detection limit; a time limit; due to noise.\n\n```sh\nbeside\n```\n"
    assert not banned(text)
    assert banned(text + "\nbeside `members`")


def test_long_lines_are_allowed_in_tables_and_targets_of_links_only():
    assert too_long("word " * 30)
    assert not too_long("| " + "x" * 200 + " |\n[a](" + "x" * 200 + ")\n```\n" + "x" * 200 + "\n```\n")
