package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// release is set by the linker in releases.
var release = "development"

// version is the subcommand.
func version(_ context.Context, _ []string, out io.Writer) error {
	_, err := fmt.Fprintf(out, "sluice %s%s %s %s/%s\n", release, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// revision is the commit that the program was built from, if the build knows it.
func revision() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	text, changed := "", ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			text = " " + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " (changed)"
		}
	}
	return text + changed
}
