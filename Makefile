# Dispatch only: recipes of more than three lines live in tools/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CATALOG ?= terraform/catalog
CORRAL := .venv/bin/corral
# Variables of the command line are in the environment of a recipe, where a blank is no end of a word.
WITH_CATALOG = $(if $(filter-out file,$(origin CATALOG)),--catalog "$$CATALOG")
ARGS ?=

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(lastword $(MAKEFILE_LIST)))

##@ Start here

demo: setup ## Small models from an empty store to verified answers, with the real engines (KEEP=1 leaves them running)
	@$(CORRAL) demo $(if $(filter-out 0 no,$(KEEP)),--keep) $(ARGS)

test: setup ## Rules, commands, hostile input, Terraform's modules; no GPU, no internet beyond package registries
	@tools/dev/test.sh own $(ARGS)

test-stack: setup ## The real llama-swap and engines behind the front door, with tiny models; as long again
	@tools/dev/test.sh stack $(ARGS)

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nVariables: CATALOG=%s, ARGS="further options"\n' "$(CATALOG)"

##@ The homelab

init: setup ## terraform init of the homelab stack (BACKEND=pg: its state in PostgreSQL at PG_CONN_STR)
	@tools/dev/terraform_init.sh $(ARGS)

plan: setup ## The changes that an apply would make in the cluster, in the catalog's terms (ARGS=--local: on this machine)
	@$(CORRAL) plan $(WITH_CATALOG) $(ARGS)

apply: setup ## Show the plan, ask, apply it, then smoke (ARGS="--yes --no-smoke": without question and smoke)
	@$(CORRAL) apply $(WITH_CATALOG) $(ARGS)

destroy: setup ## Show what would be removed from the cluster and what stays, ask, remove it (ARGS=--yes: without question)
	@$(CORRAL) destroy $(ARGS)

smoke: setup ## Prove that every model of the running stack answers, and answers right
	@$(CORRAL) smoke $(WITH_CATALOG) $(ARGS)

##@ The machines

hosts: setup ## Show Ansible's changes, ask, then make them (INVENTORY=DIR PLAYBOOK=store|gpu-nodes|…, else site)
	@tools/dev/hosts.sh $(ARGS)

test-hosts: ## Every Ansible role on real hosts, booted for it (root; INSTALL=1; ARGS="-k nfs_store" for some)
	@tools/dev/test_hosts.sh $(ARGS)

test-cluster: ## The deployment on a real throwaway Kubernetes (root; INSTALL=1; CLUSTER=current uses yours; ARGS="-k apply" for some)
	@tools/dev/test_cluster.sh $(ARGS)

test-gateway: ## LiteLLM's real proxy in front of a real stack, and the clients of docs/clients.md (640 MB in the cache; ARGS="-k stream" for some)
	@tools/dev/test_gateway.sh $(ARGS)

test-vllm: setup ## A real model on llama.cpp and on vLLM, both on the processor (6 GB in the cache, once; Python 3.11; not in CI)
	@tools/dev/test_vllm.sh $(ARGS)

##@ Development

check: setup ## Format, lint, types, schemas, generated files; writes nothing
	@tools/dev/check.sh

fix: setup ## Write the files that check compares
	@tools/dev/fix.sh

bench: setup ## Benchmarks, each with its ratio to a reference of the same run
	@tools/dev/bench.sh $(ARGS)

setup: ## The virtual environment; every other target calls it
	@tools/setup.sh

clean: ## Delete .venv and the local stack's state, after a question (YES=1: without)
	@tools/dev/clean.sh
