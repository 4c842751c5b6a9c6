package harness

import (
	"fmt"
	"regexp"
	"strings"
)

// Statement is what is sent to both sides.
type Statement struct {
	SQL      string
	Copy     *CopyInput
	Bound    *Bound // extended protocol
	Ordered  bool   // compare rows in order even if the text has no ORDER BY
	Shuffled bool   // compare rows as a multiset even if it has
}

// Run executes the statement in a session.
func (st Statement) Run(s *Session) (Reply, error) {
	if st.Bound != nil {
		return s.Extended(st.SQL, *st.Bound, st.Copy)
	}
	return s.QueryCopy(st.SQL, st.Copy)
}

// Both runs the statement on both sides, got first. An error means that a side could not answer at all.
func Both(ref, got *Session, st Statement) (want, have Reply, err error) {
	if have, err = st.Run(got); err != nil {
		return want, have, fmt.Errorf("sluice: %w", err)
	}
	if want, err = st.Run(ref); err != nil {
		return want, have, fmt.Errorf("postgres: %w", err)
	}
	return want, have, nil
}

// Same runs the statement on both sides and describes the difference; empty means the same.
func Same(ref, got *Session, st Statement) (string, error) {
	want, have, err := Both(ref, got, st)
	if err != nil {
		return "", err
	}
	return st.Compare(want, have), nil
}

// SameOrRefused is Same for a statement that Sluice may refuse with 0A000. Postgres does not run a refused
// statement; inside a transaction it fails too, so that both sides stay in the same state.
func SameOrRefused(ref, got *Session, st Statement) (refused bool, diff string, err error) {
	have, err := st.Run(got)
	if err != nil {
		return false, "", fmt.Errorf("sluice: %w", err)
	}
	if have.Code() == "0A000" {
		return true, "", Poison(ref, got)
	}
	want, err := st.Run(ref)
	if err != nil {
		return false, "", fmt.Errorf("postgres: %w", err)
	}
	return false, st.Compare(want, have), nil
}

// Poison fails the reference's open transaction if the other side's has failed.
func Poison(ref, got *Session) error {
	if ref.Status != 'T' || got.Status != 'E' {
		return nil
	}
	_, err := ref.Query("do $$ begin raise exception 'refused' using errcode = '0A000'; end $$")
	return err
}

// Compare is the difference of two replies to the statement.
func (st Statement) Compare(want, have Reply) string {
	ordered := st.isOrdered()
	return Diff(want.Lines(ordered), have.Lines(ordered))
}

var (
	quoted   = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\$.*?\$\$|--[^\n]*|/\*.*?\*/`)
	innerPar = regexp.MustCompile(`\([^()]*\)`)
	orderBy  = regexp.MustCompile(`(?i)\border\s+by\b`)
	inOrder  = regexp.MustCompile(`(?i)^\s*(fetch|show|explain)\b`)
	copyOut  = regexp.MustCompile(`(?i)^\s*copy\b`)
)

// isOrdered says whether the statement fixes the order of its rows: an ORDER BY outside all parentheses.
func (st Statement) isOrdered() bool {
	if st.Ordered || st.Shuffled {
		return st.Ordered
	}
	text := quoted.ReplaceAllString(st.SQL, "''")
	if copyOut.MatchString(text) {
		return orderBy.MatchString(text)
	}
	if inOrder.MatchString(text) {
		return true
	}
	for {
		flat := innerPar.ReplaceAllString(text, " ")
		if flat == text {
			return orderBy.MatchString(text)
		}
		text = flat
	}
}

// Diff shows want (-) and got (+) line by line, with the equal lines around a difference. Empty if equal.
func Diff(want, have []string) string {
	if strings.Join(want, "\n") == strings.Join(have, "\n") {
		return ""
	}
	var out strings.Builder
	ops := longestCommon(want, have)
	for i, o := range ops {
		if o.mark == ' ' && !near(ops, i) {
			continue
		}
		fmt.Fprintf(&out, "%c %s\n", o.mark, o.line)
	}
	return out.String()
}

type diffLine struct {
	mark byte
	line string
}

// near says whether a changed line is within two lines of i.
func near(ops []diffLine, i int) bool {
	for j := max(0, i-2); j <= min(len(ops)-1, i+2); j++ {
		if ops[j].mark != ' ' {
			return true
		}
	}
	return false
}

// longestCommon aligns two texts by their longest common subsequence. Very long texts are aligned only by
// their common head and tail, which bounds the table.
func longestCommon(a, b []string) []diffLine {
	var out, tail []diffLine
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		out = append(out, diffLine{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, diffLine{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a)*len(b) <= 4_000_000 {
		out = append(out, align(a, b)...)
	} else {
		out = append(append(out, marked('-', a)...), marked('+', b)...)
	}
	for i := len(tail) - 1; i >= 0; i-- {
		out = append(out, tail[i])
	}
	return out
}

func marked(mark byte, lines []string) []diffLine {
	out := make([]diffLine, len(lines))
	for i, l := range lines {
		out[i] = diffLine{mark, l}
	}
	return out
}

func align(a, b []string) []diffLine {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	var out []diffLine
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, diffLine{' ', a[i]})
			i, j = i+1, j+1
		case table[i+1][j] >= table[i][j+1]:
			out = append(out, diffLine{'-', a[i]})
			i++
		default:
			out = append(out, diffLine{'+', b[j]})
			j++
		}
	}
	return append(append(out, marked('-', a[i:])...), marked('+', b[j:])...)
}
