package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/conformance/harness"
)

type run struct {
	name    string // of the suite
	on      string // sluice or postgres
	only    string
	timeout time.Duration
	folder  string // of the suite
	cache   string // its downloads
	results string // file
}

func main() {
	r := run{}
	flag.StringVar(&r.on, "on", "sluice", "server to test: sluice or postgres")
	flag.StringVar(&r.only, "only", "", "run only these tests, in the suite's own terms; nothing is compared with the lists")
	flag.DurationVar(&r.timeout, "timeout", 30*time.Minute, "time for the suite")
	write := flag.Bool("write", false, "with -on postgres: write the list of what fails there")
	flag.Parse()
	if flag.NArg() != 1 || r.on != "sluice" && r.on != "postgres" || *write && (r.on != "postgres" || r.only != "") {
		flag.Usage()
		os.Exit(2)
	}
	r.name = flag.Arg(0)
	if err := r.all(*write); err != nil {
		fmt.Fprintln(os.Stderr, "drivers:", err)
		os.Exit(1)
	}
}

func (r *run) all(write bool) error {
	if err := r.places(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env, end, err := r.server()
	if err != nil {
		return err
	}
	defer end()
	if err := r.suite(ctx, env); err != nil {
		return err
	}
	got, err := readResults(r.results)
	if err != nil {
		return err
	}
	fmt.Printf("%s on %s: %s (each in %s)\n", r.name, r.on, got.counts(), r.results)
	switch {
	case r.only != "":
		got.print("fail")
		return nil
	case write:
		return writeList(filepath.Join(r.folder, "postgres.txt"), got)
	}
	return r.compare(got)
}

// places finds the suite's folder and makes those for downloads and results.
func (r *run) places() error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	r.folder = filepath.Join(root, "conformance", "drivers", r.name)
	if _, err := os.Stat(filepath.Join(r.folder, "suite")); err != nil || r.name != filepath.Base(r.name) {
		return fmt.Errorf("no suite %q", r.name)
	}
	r.cache = filepath.Join(root, "conformance", ".cache", "drivers", r.name)
	r.results = filepath.Join(r.cache, r.on+".results")
	return os.MkdirAll(r.cache, 0o755)
}

// server starts the server to test. On Postgres the suite is the superuser, as its authors expect; on Sluice it is the owner of the lake.
func (r *run) server() (env []string, end func(), err error) {
	var dsn string
	if r.on == "postgres" {
		c, err := harness.StartCluster()
		if err != nil {
			return nil, nil, err
		}
		dsn, end = c.DSN("postgres", r.database()), c.Stop
	} else {
		g, err := harness.NewGateway(harness.Options{Database: r.database()})
		if err != nil {
			return nil, nil, err
		}
		dsn = g.DSN()
		end = func() {
			if !g.Alive() {
				fmt.Fprintf(os.Stderr, "the gateway died; end of its log:\n%s\n", g.LogTail(60))
			}
			g.End()
		}
	}
	env, err = harness.Environment(dsn)
	return env, end, err
}

// database is the one to test in: some suites know the name of theirs.
func (r *run) database() string {
	name, err := os.ReadFile(filepath.Join(r.folder, "database"))
	if err != nil {
		return "lake"
	}
	return strings.TrimSpace(string(name))
}

// suite runs the suite's executable and ends all its processes when the time is over. A status other than 0 is no error as long as there
// are results: they say what failed.
func (r *run) suite(ctx context.Context, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_ = os.Remove(r.results)
	log, err := os.Create(filepath.Join(r.cache, r.on+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(r.folder, "suite"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.folder, log, log
	cmd.Env = append(append(os.Environ(), env...), "SUITE="+r.folder, "CACHE="+r.cache, "RESULTS="+r.results, "ONLY="+r.only, "ON="+r.on)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("ended after %s: see %s", r.timeout, log.Name())
	}
	if _, missing := os.Stat(r.results); missing != nil {
		return errors.Join(err, fmt.Errorf("no results: see %s", log.Name()))
	}
	return nil
}
