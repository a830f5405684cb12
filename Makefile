# Two commands do all of the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast test-all versions reproduce-quick lint types unit wheel docs gallery site clean

demo: .venv/installed
	$(BIN)/unfade demo
	$(BIN)/unfade demo --toy

test: .venv/installed lint types unit wheel

# What is quick: everything but long fits, the page, streaming, engines and the paper; under a minute on two cores.
FAST := architecture words observations text_formats csv_text io_tables dataset corruption rng draws sampling storage \
  option_rules renamed support_gaps early_stopping pipeline work_once downstream
test-fast: .venv/installed lint
	$(BIN)/python -m pytest -n 2 $(FAST:%=tests/test_%.py)

test-all: test versions
	$(BIN)/python -m pytest -m slow tests

# The oldest versions of what unfade is built on; the newest are those of constraints.txt, which `make test` runs on.
versions: .venv/installed
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet -r tests/oldest.txt
	build/oldest/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	build/oldest/bin/python -m pytest -n 2 tests --ignore tests/test_app.py --ignore tests/test_engines.py \
	  --ignore tests/test_examples.py

# Every experiment of the paper in its smallest form, tables for one share that is missing and one floor; some minutes
# on two cores. DATA is a folder with the data sets, fetched where it is empty.
DATA ?= build/data
reproduce-quick: .venv/installed
	for name in $$($(BIN)/unfade reproduce list | cut -d" " -f1); do \
	  $(BIN)/unfade reproduce $$name --quick --missing 0.5 --lim 20 --data-dir $(DATA) -o build/reproduce/$$name || exit 1; done

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

unit: .venv/installed
	$(BIN)/python -m pytest -n 2

# The built wheel, installed elsewhere, is what a user gets: it is tested once as such.
wheel: .venv/installed
	rm -rf build/wheel && $(BIN)/python -m build --wheel --no-isolation --outdir build/wheel .
	$(BIN)/python tests/check_wheel.py build/wheel

# The site in build/site: the gallery is run, the pages are built strictly, links are followed.
docs: gallery site

gallery: .venv/docs-installed
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_gallery.py

site: .venv/docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/check_site.py build/site

.venv/docs-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev,docs]'
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip hatchling hatch-vcs editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
