#!/usr/bin/env bash
# Puts in place what building (build), running (run), testing (test) or the long tests (conformance, after test) need: a C++
# compiler, Postgres server binaries, npm for real input, Java and the foreign engines in .venv. Installs missing packages on
# Debian and Ubuntu when run as root; otherwise says in one line what to install. Called by make, once for each purpose.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:?usage: install.sh build|run|test|conformance}

have() { command -v "$1" >/dev/null 2>&1; }

missing=()
need() { # package, then the test that shows it is there
	local package=$1
	shift
	"$@" || missing+=("$package")
}

postgres_binaries() {
	[ -n "${SLUICE_PG_BIN:-}" ] && [ -x "$SLUICE_PG_BIN/initdb" ] && return
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || have initdb || { have pg_config && [ -x "$(pg_config --bindir)/initdb" ]; }
}

python_venv() { have python3 && python3 -c 'import venv, ensurepip' 2>/dev/null; }

need gcc have gcc
need g++ have g++
case $purpose in
run) need postgresql postgres_binaries ;;
test)
	need postgresql postgres_binaries
	need npm have npm
	[ -x .venv/bin/python ] || need python3-venv python_venv
	;;
conformance) need default-jre-headless have java ;;
esac

if [ ${#missing[@]} -gt 0 ]; then
	if [ "$(id -u)" = 0 ] && have apt-get; then
		echo "installing ${missing[*]}"
		# The server's package would start a cluster of its own; we want the programs only.
		mkdir -p /etc/postgresql-common
		[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
	elif [ "$purpose" = run ] && [ "${missing[*]}" = postgresql ]; then
		echo "no Postgres server binaries here: the gateway fetches its own at the first start" >&2
	else
		echo "please install: ${missing[*]}" >&2
		exit 1
	fi
fi

if ! have go; then
	echo "please install: Go 1.26 or newer" >&2
	exit 1
fi
go mod download

# python_packages installs what a file of requirements lists into .venv, once for each content of the file.
python_packages() {
	local list=conformance/engines/$1 stamp=.venv/.$1
	cmp -s "$list" "$stamp" && return
	[ -x .venv/bin/python ] || python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$list"
	cp "$list" "$stamp"
}

case $purpose in
test) python_packages requirements.txt ;;
conformance)
	python_packages requirements-conformance.txt
	.venv/bin/python conformance/engines/spark_session.py
	;;
esac
