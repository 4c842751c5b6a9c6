package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// results is what became of each test: pass, fail or skip.
type results map[string]string

// goEvent is a line of go test -json.
type goEvent struct{ Action, Package, Test string }

// readResults reads a suite's file. A Go test that never ended, because its package did, has failed.
func readResults(path string) (results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := results{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "{") {
			out.goLine(line)
			continue
		}
		what, name, ok := strings.Cut(line, " ")
		if !ok || what != "pass" && what != "fail" && what != "skip" {
			return nil, fmt.Errorf("%s: not a result: %q", path, line)
		}
		out[name] = what
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no test ran", path)
	}
	return out, nil
}

func (r results) goLine(line string) {
	var e goEvent
	if json.Unmarshal([]byte(line), &e) != nil || e.Test == "" {
		return
	}
	name := e.Package + "." + e.Test
	switch e.Action {
	case "run":
		r[name] = "fail"
	case "pass", "fail", "skip":
		r[name] = e.Action
	}
}

func (r results) of(what string) []string {
	var out []string
	for name, w := range r {
		if w == what {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (r results) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", len(r.of("pass")), len(r.of("fail")), len(r.of("skip")))
}

func (r results) print(what string) {
	for _, name := range r.of(what) {
		fmt.Println("\t" + what + " " + name)
	}
}

// list is a checked-in list: names of tests that fail, with a reason or none, and how many others pass.
type list struct {
	fails  map[string]string
	passes int
}

// readList reads lines "NAME", "NAME<tab>reason", "passes N" and comments.
func readList(path string) (list, error) {
	l := list{fails: map[string]string{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		n, counted := strings.CutPrefix(line, "passes ")
		switch {
		case line == "" || line[0] == '#':
		case counted:
			if l.passes, err = strconv.Atoi(n); err != nil {
				return l, fmt.Errorf("%s: %w", path, err)
			}
		default:
			name, reason, _ := strings.Cut(line, "\t")
			l.fails[name] = reason
		}
	}
	return l, errors.Join(err, lines.Err())
}

func writeList(path string, r results) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# What fails on Postgres 15. Made by: conformance/drivers/run -on postgres -write %s\n", filepath.Base(filepath.Dir(path)))
	fmt.Fprintf(&b, "passes %d\n", len(r.of("pass")))
	for _, name := range r.of("fail") {
		b.WriteString(name + "\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// compare fails on whatever the lists do not say. A reason that begins with "sometimes" is of a test that may pass too.
func (r *run) compare(got results) error {
	anywhere, err := readList(filepath.Join(r.folder, "postgres.txt"))
	if err != nil {
		return err
	}
	ours := list{fails: map[string]string{}}
	if r.on == "sluice" {
		if ours, err = readList(filepath.Join(r.folder, "sluice.txt")); err != nil {
			return err
		}
	}
	return judge(got, anywhere, ours)
}

func judge(got results, anywhere, ours list) error {
	var wrong []string
	for _, name := range got.of("fail") {
		_, there := anywhere.fails[name]
		if _, here := ours.fails[name]; !there && !here {
			wrong = append(wrong, "fails and is on no list: "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours.fails)) {
		reason := ours.fails[name]
		if reason == "" {
			wrong = append(wrong, "is listed without a reason: "+name)
		}
		if got[name] == "pass" && !strings.HasPrefix(reason, "sometimes") {
			wrong = append(wrong, "is listed and passes: "+name)
		}
	}
	if passed := len(got.of("pass")); passed < anywhere.passes-len(ours.fails) {
		wrong = append(wrong, fmt.Sprintf("only %d tests passed; on Postgres %d, and the list excuses %d", passed, anywhere.passes, len(ours.fails)))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d differences from the lists:\n\t%s", len(wrong), strings.Join(wrong, "\n\t"))
	}
	fmt.Printf("as the lists say: %d fail on Postgres too, %d on Sluice only\n", len(anywhere.fails), len(ours.fails))
	return nil
}
