package conformance_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/conformance/harness"
)

var isolationLevels = []string{"read committed", "repeatable read", "serializable"}

// TestIsolation plays the specs of testdata/isolation, the anomalies of Adya's thesis and of Berenson et al. as small scripts, at each level on
// Postgres and Sluice. Below SERIALIZABLE both answer the same to every step. At SERIALIZABLE who fails is the server's choice, and Sluice, which
// looks at whole tables, fails more often: there the anomaly must not have happened on either side.
func TestIsolation(t *testing.T) {
	paths, err := filepath.Glob("testdata/isolation/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no specs: %v", err)
	}
	for _, level := range isolationLevels {
		for _, path := range paths {
			t.Run(strings.ReplaceAll(level, " ", "_")+"/"+strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
				spec := readSpec(t, path, level)
				pair := harness.NewPair(t)
				want := playSpec(t, pair.Ref, spec, level)
				have := playSpec(t, pair.Got, spec, level)
				if level != "serializable" {
					compareSpec(t, spec, want, have)
				}
			})
		}
	}
}

// TestIsolationSpecs shows that the specs find their anomalies: on Postgres, one level below the one that excludes it, each is there.
func TestIsolationSpecs(t *testing.T) {
	for name, level := range map[string]string{"pmp": "read committed", "p4": "read committed", "g_single": "read committed", "g_single_predicate": "read committed",
		"g2_item": "repeatable read", "g2": "repeatable read", "g2_two_edges": "repeatable read"} {
		spec := readSpec(t, "testdata/isolation/"+name+".txt", level)
		replies := playSpec(t, harness.NewPair(t).Ref, spec, level)
		if last := replies[len(replies)-1]; len(last.Rows()) == 0 {
			t.Errorf("%s at %s: Postgres does not show the anomaly", name, level)
		}
	}
}

// readSpec reads a spec with its level written in.
func readSpec(t *testing.T, path, level string) []*harness.Step {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(written, []byte(strings.ReplaceAll(string(text), "LEVEL", level)), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := harness.ReadScript(written)
	if err != nil {
		t.Fatal(err)
	}
	var steps []*harness.Step
	for i := range script.Steps {
		steps = append(steps, &script.Steps[i])
	}
	return steps
}

// specRun plays a spec on one side.
type specRun struct {
	side    *harness.Side
	level   string
	session string
	replies []harness.Reply // of the statements, in the order in which they are said
	waiting map[string]int  // session → index of its reply that is not there yet
	answers map[string]chan harness.Reply
}

func playSpec(t *testing.T, side *harness.Side, spec []*harness.Step, level string) []harness.Reply {
	t.Helper()
	r := &specRun{side: side, level: level, session: "a", waiting: map[string]int{}, answers: map[string]chan harness.Reply{}}
	verb := ""
	for _, step := range spec {
		switch step.Verb {
		case "session":
			r.session = step.Arg
		case "returns":
			r.collect(t, step.Arg)
		case "waits":
			verb = "waits"
		case "anomaly":
			verb = "anomaly " + step.Arg
		default:
			r.say(t, step, verb)
			verb = ""
		}
	}
	return r.replies
}

func (r *specRun) say(t *testing.T, step *harness.Step, verb string) {
	t.Helper()
	r.collect(t, r.session)
	answer := make(chan harness.Reply, 1)
	session := r.side.Session(r.session)
	go func() {
		reply, err := step.Run(session)
		if err != nil {
			t.Errorf("%s: %s: %v", r.side.Name, step.SQL, err)
		}
		answer <- reply
	}()
	r.replies = append(r.replies, harness.Reply{})
	r.waiting[r.session], r.answers[r.session] = len(r.replies)-1, answer
	if verb == "waits" {
		r.mustWait(t, step, answer)
		return
	}
	reply := r.collect(t, r.session)
	if r.forbidden(verb) && (reply.Err() != nil || len(reply.Rows()) > 0) {
		t.Errorf("%s at %s: %v %v", r.side.Name, r.level, reply.Err(), reply.Rows())
	}
}

// mustWait sees that no answer comes. At SERIALIZABLE the statement may fail at once instead.
func (r *specRun) mustWait(t *testing.T, step *harness.Step, answer chan harness.Reply) {
	t.Helper()
	select {
	case reply := <-answer:
		answer <- reply
		if r.level != "serializable" {
			t.Errorf("%s at %s: %s\ndoes not wait: %v", r.side.Name, r.level, step.SQL, reply.Lines(false))
		}
	case <-time.After(150 * time.Millisecond):
	}
}

// collect takes the answer that a session still owes, if it does.
func (r *specRun) collect(t *testing.T, session string) harness.Reply {
	t.Helper()
	answer := r.answers[session]
	if answer == nil {
		return harness.Reply{}
	}
	delete(r.answers, session)
	reply := <-answer
	r.replies[r.waiting[session]] = reply
	return reply
}

// forbidden says whether an anomaly's level excludes it.
func (r *specRun) forbidden(verb string) bool {
	switch verb {
	case "anomaly ", "anomaly":
		return true
	case "anomaly above read committed":
		return r.level != "read committed"
	case "anomaly at serializable":
		return r.level == "serializable"
	}
	return false
}

func compareSpec(t *testing.T, spec []*harness.Step, want, have []harness.Reply) {
	t.Helper()
	said := slices.DeleteFunc(slices.Clone(spec), func(s *harness.Step) bool { return s.SQL == "" })
	for i := range want {
		if diff := said[i].Compare(want[i], have[i]); diff != "" {
			t.Errorf("%s\n%s", said[i].SQL, diff)
		}
	}
}
