# Needs python3 (3.11 to 3.13) and make; everything else it fetches itself.
PYTHON ?= python3
# All but deepspeed and tpu; `make setup EXTRAS=all` adds them.
EXTRAS ?= torch,tf,data,dev
BIN := .venv/bin
INSTALLED := .venv/installed-$(EXTRAS)

.PHONY: setup run test test-slow test-gpu lint docs museum docs-pictures

setup: $(INSTALLED)

# torch first and by version, so that nothing pulls another build of it. pip would compile on one core, and the packages'
# tests as well; what does not compile, such as a template, is left as it is.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(EXTRAS)]'
	$(BIN)/python -m compileall -qq -j 0 -x /tests/ .venv/lib || true
	touch $(INSTALLED)

run: setup
	$(BIN)/python -m experiments.compare --report

# Hundreds of processes start here: none compiles the same source again.
test test-slow: export PYTHONDONTWRITEBYTECODE =

# One more at a time than there are cores: a test that waits for processes leaves its core to another.
test: setup
	$(BIN)/python -m pytest --numprocesses $$(($$(nproc) + 1)) --dist worksteal

# All that `make test` leaves out. Writes docs/parity.md and parity.csv: the products resume where they stopped, and
# ONLY=torch:ddp,tf:mirrored takes those of some strategies, and nothing else. PART=3/20 takes the third of twenty parts.
test-slow: setup
	$(BIN)/python -m pytest -m slow --numprocesses $$(($$(nproc) + 1)) --dist worksteal \
		$(if $(PART),--part $(PART)) $(if $(ONLY),tests/parity/test_products.py)

# On a machine with a GPU; exit code 3 where there is none.
test-gpu: setup
	$(BIN)/python -m samestep doctor --gpu
	$(BIN)/python -m pytest -m gpu

lint: setup
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyrefly check
	$(BIN)/codespell
	$(BIN)/python -m pytest --quiet tests/test_docs.py

# The docs as a site, in build/site; fails where a link leads nowhere. Needs the extra `docs`.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Runs released packages that were wrong, and writes docs/museum.md: half an hour, 1 GB in .museum/. Resumes where it stopped.
museum: setup
	$(BIN)/python -m museum

# The pictures that docs/ shows, from runs on this machine.
docs-pictures: setup
	$(BIN)/python -m documenting.docs_pictures
	$(BIN)/python -m documenting.page_pictures
	$(BIN)/python -m documenting.demo_picture
	$(BIN)/python -m documenting.explorer_picture
