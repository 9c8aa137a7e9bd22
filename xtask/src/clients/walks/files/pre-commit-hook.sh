#!/bin/sh
# As `pre-commit install` writes it, with the program of the virtual environment.
exec .venv/bin/pre-commit hook-impl --config=.pre-commit-config.yaml --hook-type=pre-commit --hook-dir .git/hooks -- "$@"
