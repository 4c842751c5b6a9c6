#!/usr/bin/env bash
# Runs every fuzz target for the given time. A crasher is left in the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-1m}
grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9]+' "$dir" | awk '{print $2}' | while read -r target; do
		echo "== $dir $target"
		go test -tags duckdb_arrow -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
	done
done
