# AgentBox: `make up` starts the platform, `make test` runs every test. Everything else serves those two.

GO        ?= go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X navix.sh/agentbox/cli.Version=$(VERSION) -X navix.sh/agentbox/controller.Version=$(VERSION)
LINTER    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TESTFLAGS ?= -race -timeout 20m

.PHONY: help up build test lint generate bench release site clean

help: ## show the targets
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: build ## build, start the platform in the foreground, save the context `local`
	@sh scripts/up.sh

build: ## leave abx, controller, envd and sandbox-init in bin/
	@GO='$(GO)' LDFLAGS='$(LDFLAGS)' sh scripts/build.sh bin ./cmd/...

test: build ## every test, with the race detector
	$(GO) test $(TESTFLAGS) ./...

lint: ## formatting, vet, linters, import rules, generated files, the OpenAPI documents, shell scripts
	@GO='$(GO)' LINTER='$(LINTER)' sh scripts/lint.sh

generate: ## rebuild everything that is generated
	$(GO) generate ./...

bench: build ## the published figures, each beside its baseline
	@GO='$(GO)' sh scripts/bench.sh

release: ## reproducible archives, checksums, signatures and SBOM in dist/
	@GO='$(GO)' VERSION='$(VERSION)' sh scripts/release.sh

site: ## the documentation as a site in dist/site (needs npm)
	@sh scripts/site.sh

clean: ## remove what make built
	rm -rf bin dist
