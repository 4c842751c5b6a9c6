// Command sluice is the ingest gateway: Postgres wire in, lake tables out.
//
// It owns the command line, the settings (config.go) and the order of start and stop (serve.go, stages.go); it is the only
// place that wires the parts together. Start with main. It holds no logic of its own: whatever a subcommand does is a call into
// one of the packages below.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"sluice/server/reader"
)

// subcommand is one verb of the program.
type subcommand struct {
	name   string
	args   string
	does   string
	hidden bool
	run    func(ctx context.Context, args []string, out io.Writer) error
}

var subcommands = []subcommand{
	{name: "serve", args: "[flags]", does: "run the gateway", run: serve},
	{name: "fsck", args: "[flags]", does: "prove the invariants of a stopped gateway's data", run: fsck},
	{name: "dump", args: "[flags] DIR…", does: "print the log in a folder", run: dump},
	{name: "reader", hidden: true, run: func(ctx context.Context, args []string, _ io.Writer) error { return reader.Main(ctx, args) }},
	{name: "version", does: "print the version", run: version},
}

// errUsage is a mistake of the caller that was already explained.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code)
}

// command is main without the process: it returns the exit code. 2 is a mistake on the command line, 1 any other failure.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	if len(args) == 0 {
		usage(errOut)
		return 2
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(out)
		return 0
	}
	i := slices.IndexFunc(subcommands, func(s subcommand) bool { return s.name == args[0] })
	if i < 0 {
		fmt.Fprintf(errOut, "sluice: unknown command %q\n", args[0])
		usage(errOut)
		return 2
	}
	err := subcommands[i].run(ctx, args[1:], out)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(errOut, "sluice %s: %v\nTry: sluice %s --help\n", args[0], err, args[0])
		return 2
	}
	fmt.Fprintf(errOut, "sluice %s: %v\n", args[0], err)
	return 1
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Sluice is an ingest gateway: any Postgres client in, well-sized lake tables out.\n\nUsage:\n\n")
	for _, s := range subcommands {
		if !s.hidden {
			fmt.Fprintf(w, "  sluice %-22s %s\n", s.name+" "+s.args, s.does)
		}
	}
	fmt.Fprint(w, "\nsluice COMMAND --help prints all flags. Every flag can be set in the environment instead.\n")
}
