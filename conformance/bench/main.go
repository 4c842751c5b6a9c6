package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"sluice/conformance/harness"
)

// options of the command line.
type options struct {
	rounds       int
	seconds      float64
	size         sizes
	only         *regexp.Regexp
	quick        bool
	postgresOnly bool
	dir          string
	out          string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	opt, err := parseOptions(args)
	if err != nil {
		return err
	}
	dir, err := workDir(opt.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{options: opt, dir: dir}
	defer b.stop()
	if err := b.start(ctx); err != nil {
		return err
	}
	rep := report{Date: time.Now().UTC().Format(time.DateOnly), Machine: describe(ctx, b.sides[0], dir), Options: b.conditions()}
	for _, w := range workloads() {
		if opt.only == nil || opt.only.MatchString(w.name) {
			rep.Results = append(rep.Results, b.workload(ctx, w))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	rep.writeTable(os.Stdout)
	if err := rep.save(opt.out); err != nil {
		return err
	}
	return rep.failures()
}

func parseOptions(args []string) (opt options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&opt.rounds, "rounds", 3, "turns of each server on each workload")
	fs.Float64Var(&opt.seconds, "seconds", 5, "length of a turn that is not a COPY; pgbench takes whole seconds, rounded up")
	fs.Int64Var(&opt.size.CopyRows, "copy-rows", 2_000_000, "rows of a COPY")
	fs.Int64Var(&opt.size.Keys, "keys", 1_000_000, "keys of the tables of upserts and point reads")
	fs.BoolVar(&opt.quick, "quick", false, "small sizes, one short round, where not set otherwise")
	fs.BoolVar(&opt.postgresOnly, "postgres-only", false, "a second Postgres in place of the gateway")
	fs.StringVar(&opt.dir, "dir", "", "folder on the disk to measure; empty: the system's folder for temporary files")
	fs.StringVar(&opt.out, "out", "", "folder for bench.json and bench.md; empty: docs/results if the run is a whole one")
	only := fs.String("only", "", "run the workloads whose name matches")
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	if *only != "" {
		if opt.only, err = regexp.Compile(*only); err != nil {
			return opt, err
		}
	}
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if opt.quick {
		opt.shrink(set)
	}
	if opt.rounds < 1 || opt.seconds <= 0 || opt.size.CopyRows < 1 || opt.size.Keys < 1000 || fs.NArg() > 0 {
		return opt, errors.New("rounds and copy-rows are at least 1, keys at least 1000, seconds more than 0, and nothing follows the flags")
	}
	if whole := !opt.quick && !opt.postgresOnly && opt.only == nil; whole && opt.out == "" {
		root, err := harness.Root()
		if err != nil {
			return opt, err
		}
		opt.out = filepath.Join(root, "docs", "results")
	}
	return opt, nil
}

func (o *options) length() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// shrink sets the small sizes where the caller did not set others.
func (o *options) shrink(set map[string]bool) {
	if !set["rounds"] {
		o.rounds = 1
	}
	if !set["seconds"] {
		o.seconds = 0.5
	}
	if !set["copy-rows"] {
		o.size.CopyRows = 200_000
	}
	if !set["keys"] {
		o.size.Keys = 50_000
	}
}

// tmpfs is the type of a file system in memory, where a durable write costs nothing.
const tmpfs = 0x01021994

// workDir is the one folder that holds everything of this run.
func workDir(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "sluice-bench-")
	if err != nil {
		return "", err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err == nil && fs.Type == tmpfs {
		return "", errors.Join(errors.New("the folder for temporary files is in memory: name one on a disk with -dir"), os.Remove(dir))
	}
	return dir, os.Chmod(dir, 0o755) // Postgres works there under another account
}

// bench is one run.
type bench struct {
	options
	dir   string
	sides [2]*server // Postgres, and the gateway
	files *copyFiles
}

func (b *bench) start(ctx context.Context) (err error) {
	b.files = &copyFiles{dir: b.dir, rows: b.size.CopyRows, made: map[string]string{}}
	if b.sides[0], err = newPostgres(ctx, "postgres", b.dir); err != nil {
		return err
	}
	if b.postgresOnly {
		b.sides[1], err = newPostgres(ctx, "postgres2", b.dir)
	} else {
		b.sides[1], err = newGateway(ctx, b.dir)
	}
	return err
}

func (b *bench) stop() {
	for _, s := range b.sides {
		if s != nil {
			s.stop()
		}
	}
}

// workload plays one workload on both sides, in rounds. An error on one side ends it.
func (b *bench) workload(ctx context.Context, w workload) result {
	res := result{Name: w.name, Title: w.title, Bar: w.bar}
	name := "bench_" + strings.ReplaceAll(w.name, "-", "_")
	var loads [2]load
	for i, s := range b.sides {
		if !s.alive() {
			b.replace(ctx, i)
			s = b.sides[i]
		}
		loads[i] = w.open(table{server: s, name: name, size: b.size, files: b.files})
	}
	for round := range b.rounds {
		for turn := range b.sides {
			i := (round + turn) % 2
			o, err := b.turn(ctx, b.sides[i], loads[i])
			if err != nil {
				res.Error = b.sides[i].name + ": " + b.anonymous(err)
				fmt.Fprintf(os.Stderr, "%-15s FAILED  %s\n", w.name, res.Error)
				b.revive(ctx, i, err)
				return res
			}
			res.Sides[i] = append(res.Sides[i], o)
			fmt.Fprintf(os.Stderr, "%-15s %-9s %s\n", w.name, b.sides[i].name, o)
		}
	}
	res.conclude()
	for _, s := range b.sides {
		if err := s.run(ctx, "drop table "+name); err != nil {
			res.Error = s.name + ": " + b.anonymous(err)
		}
	}
	return res
}

// turn is one turn of one server, checked.
func (b *bench) turn(ctx context.Context, s *server, l load) (outcome, error) {
	debug.FreeOSMemory() // the client's garbage is collected between turns
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute+10*b.length())
	defer cancel()
	if err := l.ready(ctx); err != nil {
		return outcome{}, err
	}
	s.rest(ctx)
	o, err := measure(ctx, s, b.length(), l.work)
	if err != nil {
		return o, err
	}
	return o, l.verify(ctx)
}

// revive replaces a server that hangs, so that the next workload finds one. One that died is replaced there.
func (b *bench) revive(ctx context.Context, i int, cause error) {
	if b.sides[i].alive() && errors.Is(cause, context.DeadlineExceeded) && ctx.Err() == nil {
		b.replace(ctx, i)
	}
}

// replace starts a server anew, without what it held.
func (b *bench) replace(ctx context.Context, i int) {
	s := b.sides[i]
	fmt.Fprintf(os.Stderr, "%s is started anew; the end of its log:\n%s\n", s.name, s.logTail(15))
	fresh, err := s.restart(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s does not start: %v\n", s.name, err)
		return
	}
	b.sides[i] = fresh
}

// anonymous is an error on one line without the folders of this machine.
func (b *bench) anonymous(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	s = strings.ReplaceAll(s, b.dir, "…")
	if len(s) > 400 {
		s = s[:400] + "…"
	}
	return s
}

func (b *bench) conditions() conditions {
	return conditions{Rounds: b.rounds, Seconds: b.seconds, sizes: b.size, Sides: [2]string{b.sides[0].name, b.sides[1].name}}
}
