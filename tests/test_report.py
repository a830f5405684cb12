"""The page: complete, self-contained, small, and without errors in a browser where there is one."""

import shutil
import time
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from unfade import Recoverer
from unfade.diagnostics import markup

pytestmark = pytest.mark.filterwarnings("ignore:Time was up")  # on a busy machine

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Outline(HTMLParser):
    """What is in a page: headings, pictures, and everything it refers to."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.pictures, self.links, self._in = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self._in = tag
        if tag == "img":
            self.pictures.append(found.get("alt", ""))
        self.links += [value for name, value in found.items() if name in ("src", "href")]

    def handle_data(self, data):
        if self._in in ("h1", "h2"):
            self.headings.append(data)
            self._in = None


def frame(rows=120, columns=3):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, 1))
    made = pd.DataFrame(z + 0.5 * rng.normal(size=(rows, columns)), columns=[f"<c{i}> & co $x_$ $" for i in range(columns)])
    made["id"] = [f"row {i}" for i in range(rows)]
    made["town"] = rng.choice(["Oslo", "Bergen <b>"], rows)
    holes = rng.random(made.shape) < 0.2
    holes[:, columns] = False
    return made.mask(holes)


def written(path, data, **parameters):
    rec = Recoverer(random_state=0, verbose=0, max_seconds=2, **parameters).fit(data)
    rec.report(path, data)
    return path.read_text()


@pytest.mark.filterwarnings("ignore::unfade.errors.DataNotice")
def test_a_page_has_all_its_parts_and_needs_nothing_else(tmp_path):
    text = written(tmp_path / "report.html", frame(), noise="learn-shared")
    outline = Outline(text)
    wanted = {"Checks that passed", "Missing cells", "Observed and drawn values", "Pairs", "Comparison with simple methods"}
    assert wanted | {"Training", "Settings", "Noise", "Outliers"} <= set(outline.headings)
    assert outline.pictures
    assert all(len(alt) > 20 for alt in outline.pictures)
    assert all(link.startswith("data:") for link in outline.links)
    assert "&lt;c0&gt; &amp; co" in text
    assert not any(wrong in text for wrong in ("<c0>", "Bergen <b>", "&amp;lt;"))


def test_what_passes_through_is_not_called_missing(tmp_path):
    text = written(tmp_path / "report.html", frame())
    assert "0.0% of the rows are complete" not in text


def test_images_have_a_gallery(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(60, 1, 1)) + 0.3 * rng.normal(size=(60, 5, 4))
    images[rng.random(images.shape) < 0.3] = np.nan
    assert "Images" in Outline(written(tmp_path / "report.html", images)).headings
    rec = Recoverer(max_steps=5, random_state=0, verbose=0).fit(images)  # nothing held out: fitted once more; two draws
    rec.report(tmp_path / "two.html", images, rec.sample(images, 2))
    assert "Images" in Outline((tmp_path / "two.html").read_text()).headings


@pytest.mark.filterwarnings("ignore::unfade.errors.DataNotice")
def test_pictures_have_dates_and_truth_values_as_such(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    day = np.datetime64("2024-01-01", "us") + rng.integers(0, 300, 150) * np.timedelta64(1, "D")
    data = pd.DataFrame({"a": rng.normal(size=150), "day": day, "yes": pd.array(rng.random(150) < 0.5, "boolean")})
    data = data.mask(rng.random(data.shape) < 0.2).assign(empty=np.nan)
    figures, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **kwargs: (figures.append(self), save(self, *args, **kwargs))
    )
    rec = Recoverer(random_state=0, verbose=0, max_steps=20, n_members=1).fit(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of the column without values
        rec.report(tmp_path / "report.html", data)
    panels = {panel.get_title(): panel for figure in figures for panel in figure.axes}
    labels = {name: [label.get_text() for label in panels[name].get_xticklabels()] for name in ("day", "yes")}
    assert {label[:4] for label in labels["day"]} <= {"2023", "2024", "2025"}
    assert labels["yes"] == ["False", "True"]
    assert "empty" not in panels


@pytest.mark.slow
def test_many_columns_and_many_rows_do_not_break_it(tmp_path):
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(2000, 50)) + rng.normal(size=(2000, 1)))
    tall = pd.DataFrame(rng.normal(size=(1_000_000, 4)) + rng.normal(size=(1_000_000, 1)))
    for name, data in (("wide", wide), ("tall", tall)):
        data = data.mask(rng.random(data.shape) < 0.1)
        rec = Recoverer(random_state=0, verbose=0, max_seconds=20).fit(data)
        started = time.monotonic()
        rec.report(tmp_path / f"{name}.html", data)
        assert time.monotonic() - started < 30
        assert (tmp_path / f"{name}.html").stat().st_size < 5e6


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_it_without_errors(tmp_path, width):
    playwright = pytest.importorskip("playwright.sync_api")
    written(tmp_path / "report.html", frame())
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, told, asked = browser.new_page(viewport={"width": width, "height": 800}), [], []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        across = page.evaluate("document.documentElement.scrollWidth")
        page.screenshot(path=tmp_path / "report.png", full_page=True)
        browser.close()
    assert told == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert across <= width


def test_numbers_of_the_page_are_written_in_digits():
    assert [markup.short(value) for value in (13183.4, -49450.0, 0.12345, 12.0, 7)] == [
        "13183",
        "-49450",
        "0.1235",
        "12",
        "7",
    ]
