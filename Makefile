# Tests and demo use a private RabbitMQ that scripts/broker starts and stops.
# BROKERS is the lines to test: BROKERS="3.10 4.0 4.3". AT_ONCE=3 tests three at the same
# time; empty is one after the other.
# Empty is one line, whichever is quickest to get on this machine.
BROKERS ?=
# TICKS=real tests with nodes and waits as users have them, which takes longer; see
# scripts/test.
TICKS ?= short
# PACKAGES narrows test, race and bench down: make test PACKAGES=./plan/...
PACKAGES ?= ./...
export BROKERS TICKS
# Without the folder in what is compiled, a fresh clone compiles nothing again that was
# compiled on this machine before.
export GOFLAGS := $(GOFLAGS) -trimpath

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Of the commit, and not of the build: the same source gives the same bytes.
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
DATE := $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
PROGRAM := github.com/dlxctl/dlxctl/cmd
# OUT is the file that build writes. GOOS and GOARCH choose another platform.
OUT ?= bin/dlxctl
LINT := go tool -modfile=tools.mod golangci-lint
# The tests of several packages share the machine with a broker, and some wait for minutes
# while others compute. More packages at once let too many private nodes boot together. Where
# there are less than four processors, 32 tests at once make a node so slow that it declares no
# quorum queue any more (4.3.6). Lint vets.
CROWDED = $(or $(word 2,$(BROKERS)),$(filter 1 2 3,$(shell getconf _NPROCESSORS_ONLN)))
TEST_FLAGS ?= -timeout 60m $(if $(CROWDED),-parallel 4 -p 3,-parallel 8 -p 4) -vet=off
# How much each fuzz target tries. A number of tries, no time: when a time is up, go
# test calls a healthy target failed now and then (golang/go#75804).
FUZZTIME ?= 10000x

.DEFAULT_GOAL := help
.PHONY: help demo build site packages image packagetest helm test race modules pure broker lint words notice fmt golden docs bench fuzz snippets fresh matrix check

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see a failing message climb its backoff tiers, on a real broker
	@./scripts/demo

build: ## build bin/dlxctl, a static binary
	CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X $(PROGRAM).version=$(VERSION) -X $(PROGRAM).commit=$(COMMIT) -X $(PROGRAM).date=$(DATE)" -o $(OUT) .

site: ## build the page that audits in the browser, and the documentation, into bin/site
	@go -C internal/tools/site run . -version "$(VERSION)" "$(CURDIR)/bin/site"

packages: ## build what a release consists of into bin/packages, for all platforms, or for ONLY=linux/amd64
	@go run ./internal/tools/release -version "$(VERSION)" -commit "$(COMMIT)" -date "$(DATE)" -only "$(ONLY)" $(if $(NOTES),-notes "$(NOTES)") bin/packages

image: ## build the container image into bin/image.tar, for linux/amd64 and linux/arm64, or for ONLY=linux/amd64
	@go run ./internal/tools/release -version "$(VERSION)" -commit "$(COMMIT)" -date "$(DATE)" -only "$(ONLY)" -image bin/image.tar

packagetest: ## build the packages twice, and install, upgrade and purge them; needs Debian and root
	./scripts/packagetest

helm: ## lint the chart of Kubernetes, compare what it renders, and check all objects; its first run builds helm for minutes
	./scripts/helm

test: modules pure broker ## run all tests, on the lines of BROKERS

race: TEST_FLAGS += -race
race: modules pure broker ## the same with the race detector

# The modules that the tests are built from: see scripts/modules.
modules:
	@./scripts/modules

pure: ## run the tests of the packages that need no broker
	@packages=$$(scripts/packages pure $(PACKAGES)); \
	[ -z "$$packages" ] || scripts/gotest $(TEST_FLAGS) $$packages

broker: ## run the tests of the others, on the lines of BROKERS
	@packages=$$(scripts/packages broker $(PACKAGES)); \
	[ -z "$$packages" ] || scripts/test scripts/gotest $(TEST_FLAGS) $$packages

lint: words ## run the linters; they hold the direction of imports too
	$(LINT) run
	go run ./internal/tools/licenses -check NOTICE
	go tool -modfile=packaging/tools.mod actionlint -shellcheck= -pyflakes= .github/workflows/*.yml templates/ci/github-actions.yml
	@sed 's,dlxctl/dlxctl/action@.*,./action,' action/example.yml | go tool -modfile=packaging/tools.mod actionlint -shellcheck= -pyflakes= -stdin-filename action/example.yml -
	@if command -v shellcheck >/dev/null; then shellcheck -x $(filter-out %/bench-table,$(wildcard scripts/*)) $(wildcard packaging/deb/*) packaging/install.sh action/plan.sh .ci/run; fi

words: ## check the language of texts, comments and names
	go run ./internal/tools/words

notice: ## write the licenses of what is linked into NOTICE
	go run ./internal/tools/licenses NOTICE

fmt: ## format the code
	$(LINT) fmt

golden: ## rewrite the expected outputs of the scripts and the generated pages; read the diff as prose
	./scripts/test go test -parallel 8 -timeout 30m ./e2e ./internal/planview ./cmd ./internal/spec ./internal/audit ./internal/graph ./internal/trace ./internal/status -update

docs: build ## write the manual pages into bin/man/man1, and draw the pictures in docs/images
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) bin/dlxctl man bin/man/man1
	./scripts/pictures

bench: ## run the benchmarks, some ten minutes; writes docs/benchmarks.md
	TICKS=real TEST_FLAGS="$(TEST_FLAGS)" ./scripts/bench $(PACKAGES)

# Each target needs a run of its own. Minimizing what is new takes a minute by
# default, in which nothing is tried. Lint has vetted the packages.
fuzz: ## fuzz all that reads what others wrote, each target for FUZZTIME
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
			echo "== $$target"; \
			go test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$(dirname $$file); \
		done; \
	done

snippets: ## run the declare programs for Python, Node and Java too; gets their libraries
	./scripts/snippets

matrix: ## write docs/matrix.md from the results of all tests on all lines; runs them without RESULTS=DIR
	./scripts/matrix

fresh: ## do what the README says on a bare Debian with Go, git and make alone; needs Debian and root
	./scripts/fresh

check: ## all that a contribution needs: format, lint, tests with the race detector
	$(LINT) fmt --diff
	$(MAKE) --no-print-directory lint race
