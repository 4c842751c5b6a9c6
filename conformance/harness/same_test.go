package harness

import (
	"strings"
	"testing"
)

func text(s string) *string { return &s }

func one(res Result) Reply { return Reply{Results: []Result{res}, Status: 'I'} }

// TestCompareSeesDifferences: each aspect of an answer that is compared makes a difference when it differs.
func TestCompareSeesDifferences(t *testing.T) {
	base := func() Result {
		return Result{
			Fields: []Field{{Name: "a", OID: 23, Typmod: -1}},
			Rows:   [][]*string{{text("1")}, {text("2")}}, Tag: "SELECT 2",
		}
	}
	for name, change := range map[string]func(*Result){
		"name":      func(r *Result) { r.Fields[0].Name = "b" },
		"type":      func(r *Result) { r.Fields[0].OID = 20 },
		"typmod":    func(r *Result) { r.Fields[0].Typmod = 8 },
		"format":    func(r *Result) { r.Fields[0].Format = 1 },
		"value":     func(r *Result) { r.Rows[0][0] = text("1 ") },
		"null":      func(r *Result) { r.Rows[0][0] = nil },
		"null text": func(r *Result) { r.Rows[0][0] = text("NULL") },
		"missing":   func(r *Result) { r.Rows = r.Rows[:1] },
		"twice":     func(r *Result) { r.Rows = append(r.Rows, r.Rows[0]) },
		"tag":       func(r *Result) { r.Tag = "SELECT 3" },
		"error":     func(r *Result) { r.Fail = &Failure{Code: "XX000"} },
		"suspended": func(r *Result) { r.Suspends = true },
		"copy":      func(r *Result) { r.Copied = []byte("1\n") },
	} {
		changed := base()
		change(&changed)
		if (Statement{}).Compare(one(base()), one(changed)) == "" {
			t.Errorf("%s: no difference seen", name)
		}
	}
	if d := (Statement{}).Compare(one(base()), one(base())); d != "" {
		t.Errorf("equal answers differ:\n%s", d)
	}
	status := one(base())
	status.Status = 'T'
	if (Statement{}).Compare(one(base()), status) == "" {
		t.Error("transaction status: no difference seen")
	}
}

// TestCompareErrors: every field of an error counts, but for what belongs to one server's run.
func TestCompareErrors(t *testing.T) {
	fail := func(f Failure) Reply { return one(Result{Fail: &f}) }
	base := Failure{Severity: "ERROR", Code: "23505", Message: "m", Detail: "d", Constraint: "c"}
	for _, other := range []Failure{
		{Severity: "ERROR", Code: "23514", Message: "m", Detail: "d", Constraint: "c"},
		{Severity: "ERROR", Code: "23505", Message: "n", Detail: "d", Constraint: "c"},
		{Severity: "ERROR", Code: "23505", Message: "m", Detail: "e", Constraint: "c"},
		{Severity: "ERROR", Code: "23505", Message: "m", Detail: "d", Constraint: "x"},
		{Severity: "ERROR", Code: "23505", Message: "m", Detail: "d", Constraint: "c", Position: 4},
	} {
		if (Statement{}).Compare(fail(base), fail(other)) == "" {
			t.Errorf("no difference between %v and %v", base, other)
		}
	}
	a := Failure{Code: "55P03", Message: "process 12 waits for relation 16500"}
	b := Failure{Code: "55P03", Message: "process 77 waits for relation 16999"}
	if d := (Statement{}).Compare(fail(a), fail(b)); d != "" {
		t.Errorf("numbers of one server's run make a difference:\n%s", d)
	}
}

// TestOrder: rows are compared in order exactly if the statement itself orders them.
func TestOrder(t *testing.T) {
	for sql, want := range map[string]bool{
		"select a from t":                                      false,
		"select a from t order by a":                           true,
		"select a from (select a from t order by a) x":         false,
		"select sum(a) over (order by b) from t":               false,
		"select 'order by' from t":                             false,
		"select (select 1) from t ORDER  BY (a)":               true,
		"fetch 3 from c":                                       true,
		"copy t to stdout":                                     false,
		"copy (select a from t order by a) to stdout":          true,
		"select string_agg(a, ',' order by a) from t group by": false,
	} {
		if got := (Statement{SQL: sql}).isOrdered(); got != want {
			t.Errorf("%s: ordered %t, want %t", sql, got, want)
		}
	}
}

// TestDiff shows the lines of both sides and the equal ones around them.
func TestDiff(t *testing.T) {
	d := Diff(strings.Fields("a b c d e f g"), strings.Fields("a b c X e f g"))
	if d != "  b\n  c\n- d\n+ X\n  e\n  f\n" {
		t.Errorf("diff:\n%s", d)
	}
}
