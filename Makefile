# make demo: learn embedded data. make test: run the tests. make docs: build the site. All install what they need.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint results docs wheel clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/developing: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/scommer demo --fresh

test: .venv/developing
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile $(ARGS)

lint: .venv/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/documenting: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

docs: .venv/documenting  # the tutorial is executed, on one core
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs site
	@echo "the site: site/index.html"

wheel: .venv/developing
	$(BIN)/python -m build --outdir dist

results: install
	$(BIN)/scommer table main --figure docs/figures/main.png
	$(BIN)/python -m scommer.paper.documents
	$(BIN)/scommer results > docs/results.md

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist site docs/_executed
