#!/usr/bin/env bash
# Puts in place what building (build), running (run) or testing (test) needs: a C++ compiler, Postgres server binaries, and
# for tests the foreign engines in .venv. Installs missing packages on Debian and Ubuntu when run as root; otherwise says in
# one line what to install. Called by make, once for each purpose.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:?usage: install.sh build|run|test}

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
	[ -x .venv/bin/python ] || need python3-venv python_venv
	;;
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

if [ "$purpose" = test ]; then
	stamp=.venv/.requirements
	if ! cmp -s conformance/engines/requirements.txt "$stamp"; then
		[ -x .venv/bin/python ] || python3 -m venv .venv
		.venv/bin/python -m pip install --quiet --disable-pip-version-check -r conformance/engines/requirements.txt
		cp conformance/engines/requirements.txt "$stamp"
	fi
fi
