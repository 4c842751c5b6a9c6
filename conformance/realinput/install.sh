#!/bin/sh
# Installs real input nobody here made into conformance/.cache:
#   install.sh vega       the npm package vega-datasets (CSV files)
#   install.sh tpch 0.1   TPC-H tables as CSV files, by the PyPI package tpchgen-cli in a venv
# What is there already is kept. Versions are pinned so that the rows do not change under the test.
set -eu
cache=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)/.cache
mkdir -p "$cache"
cd "$cache"
case "$1" in
vega)
	version=3.2.1
	[ -d "vega-$version" ] && exit 0
	rm -rf fresh && mkdir fresh
	(cd fresh && npm pack --silent "vega-datasets@$version" >/dev/null && tar xzf "vega-datasets-$version.tgz")
	mv fresh/package "vega-$version"
	rm -rf fresh
	;;
tpch)
	scale=$2
	[ -d "tpch-$scale" ] && exit 0
	[ -x tpch-venv/bin/tpchgen-cli ] || { python3 -m venv tpch-venv && tpch-venv/bin/pip install --quiet --disable-pip-version-check tpchgen-cli==4.0.0; }
	rm -rf fresh-tpch && mkdir fresh-tpch
	tpch-venv/bin/tpchgen-cli csv --quiet --scale-factor "$scale" --output-dir fresh-tpch
	mv fresh-tpch "tpch-$scale"
	;;
*)
	echo "usage: install.sh vega | tpch SCALE" >&2
	exit 2
	;;
esac
