"""The site's own rules: pages of the gallery, names on the Python page, Python in guides, one address of the repository."""

import os
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import unfade

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HOOKS = runpy.run_path(str(DOCS / "site_hooks.py"))
GUIDES = sorted((DOCS / "guide").glob("*.md"))


def blocks(path):
    """Python of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def test_the_python_page_has_every_public_name():
    assert HOOKS["public_names"]() == unfade.__all__
    page = (DOCS / "api.md").read_text()
    listed = re.findall(r"^::: unfade\.(\w+)$", page + HOOKS["more_names"](page), re.MULTILINE)
    assert sorted(set(unfade.__all__) & set(listed)) == sorted(unfade.__all__)
    assert len(listed) == len(set(listed))


def test_a_name_that_the_page_lacks_is_added():
    assert "::: unfade.Draws" in HOOKS["more_names"]("::: unfade.Recoverer\n")


def test_what_the_python_page_lists_exists():
    for name in re.findall(r"^::: (unfade[\w.]+)$", (DOCS / "api.md").read_text(), re.MULTILINE):
        pkgutil.resolve_name(name)


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](../src/unfade/rng.py)", "[a](REPO/src/unfade/rng.py)"),
        ("[a](../README.md)", "[a](index.md)"),
        ("[a](trust.md#here)", "[a](trust.md#here)"),
        ("[a](https://b.c)", "[a](https://b.c)"),
    ],
)
def test_links_that_leave_the_pages_are_rewritten(link, expected):
    assert HOOKS["outside_links"](link, False, 0, "REPO/") == expected


def test_links_of_pages_of_the_root_are_rewritten():
    text = "[a](docs/trust.md#x) [b](CHANGELOG.md) [c](Makefile)"
    assert HOOKS["outside_links"](text, True, 0, "REPO/") == "[a](trust.md#x) [b](changelog.md) [c](REPO/Makefile)"


def test_the_gallery_has_ten_pages_and_lists_all_files():
    assert {path.stem for path in (DOCS / "gallery").glob("*.py")} == set(HOOKS["SHOWN"])
    assert len(HOOKS["SHOWN"]) >= 10


def test_every_guide_is_in_the_navigation_and_on_the_front_page():
    navigation, front = (ROOT / "mkdocs.yml").read_text(), (DOCS / "index.md").read_text()
    assert [path.name for path in GUIDES if f"guide/{path.name}" not in navigation] == []
    assert [path.name for path in GUIDES if f"guide/{path.name}" not in front] == []


def test_the_repository_has_one_address():
    import tomllib

    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    texts = [(ROOT / name).read_text() for name in ("mkdocs.yml", "CITATION.cff", "packaging/conda/recipe.yaml")]
    assert all(urls["Repository"] in text for text in texts)
    assert urls["Documentation"] in texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in GUIDES if blocks(path)], ids=lambda path: path.stem)
def test_the_python_of_a_guide_runs(path, tmp_path):
    code = "\n".join(blocks(path))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment
    )
    assert run.returncode == 0, run.stderr


def test_the_checker_finds_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    problems = runpy.run_path(str(DOCS / "check_site.py"))["problems"]
    names = "".join(f'<h2 id="unfade.{name}">{name}</h2>' for name in unfade.__all__)
    (tmp_path / "api.html").write_text(f'{names}<a href="b.html#there">b</a><a href="https://else.where">c</a>')
    (tmp_path / "b.html").write_text('<p id="there"><img src="a.png"><a href="api.html#unfade.Draws">a</a>')
    (tmp_path / "a.png").write_bytes(b"")
    assert problems(tmp_path) == []
    script = '<script src="https://x.y/z.js"></script>'
    (tmp_path / "api.html").write_text(f'<a href="b.html#gone">b</a><a href="c.html">c</a>{script}')
    found = problems(tmp_path)
    assert len([each for each in found if "is missing" in each]) == len(unfade.__all__)
    assert sorted(each for each in found if "is missing" not in each) == [
        "api.html: b.html#gone has no such part",
        "api.html: c.html leads nowhere",
        "api.html: https://x.y/z.js is loaded from another server",
        "b.html: api.html#unfade.Draws has no such part",
    ]
