# What the suites in Python share; sourced. venv PACKAGE… makes one in $CACHE with these packages, sdist NAME VERSION unpacks a source
# distribution there and prints where it is. Both are kept.
venv() {
	local stamp=$CACHE/venv/.packages
	[ "$(cat "$stamp" 2>/dev/null)" = "$*" ] && return
	python3 -m venv --clear "$CACHE/venv"
	"$CACHE/venv/bin/pip" install --quiet --disable-pip-version-check "$@"
	echo "$*" >"$stamp"
}

sdist() {
	local dir=$CACHE/$1-$2
	if [ ! -e "$dir" ]; then
		rm -rf "$CACHE/download"
		"$CACHE/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary "$1" -d "$CACHE/download" "$1==$2" >&2
		mkdir "$CACHE/download/tree"
		tar xzf "$CACHE/download/"*.tar.gz -C "$CACHE/download/tree" --strip-components 1
		mv "$CACHE/download/tree" "$dir"
	fi
	echo "$dir"
}
