package harness

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Script is one file of testdata/sql: prose first, then statements of one or more sessions.
//
//	# What this script shows, one behaviour, in a sentence.
//	# claims: M48 P61
//	session a:
//	create table t (id int primary key);
//	copy t from stdin;
//	1
//	\.
//	session b:
//	waits:
//	update t set id = 2 where id = 1;
//	session a:
//	commit;
//	returns b:
//
// Every statement ends with ; at the end of a line. A line of its own that ends with a colon is a verb:
//
//	session NAME:   the following statements run in this session (first: a)
//	close NAME:     end the session without COMMIT
//	waits:          the next statement does not return before a later one lets it
//	returns NAME:   the waiting statement of the session returns now, and is compared
//	sends:          the next statement is sent, and not watched: it may return soon or late
//	deadlock A B:   two sessions wait for each other; exactly one fails with 40P01, then both roll back
//	multi:          the lines up to end: are sent as one simple query
//	bind [..]:      the next statement uses the extended protocol with these parameters (JSON, null is NULL)
//	binary [..]:    the same with binary results
//	copyfail TEXT:  the next COPY FROM STDIN is broken off by the client
//	chunk N:        the next COPY FROM STDIN comes in messages of N bytes
//	ordered:        rows of the next statement are compared in order
//	shuffled:       rows of the next statement are compared as a multiset
//	refused [CODE]: the next statement is one Sluice refuses, with 0A000 or CODE; Postgres is not asked
//	either:         the next statement may also be refused by Sluice with 0A000, changing nothing
//	unchecked:      only success or failure of the next statement is compared (EXPLAIN)
//	include FILE:   the steps of another script of the same folder
//	sluice only:    the next statement is for Sluice, postgres only: for the reference
//	flush:          move Sluice's tail into table files
//	state:          compare all tables now (also done at the end)
//	anomaly [WHEN]: the next statement finds what must not have happened: always, above read committed, or at serializable (testdata/isolation only)
type Script struct {
	Name  string
	Prose string
	Steps []Step
}

// Step is one verb or statement.
type Step struct {
	Line int
	Verb string // "sql" or one of the verbs above
	Arg  string
	Statement
}

var verb = regexp.MustCompile(`^(session|close|waits|sends|returns|deadlock|multi|end|bind|binary|copyfail|chunk|ordered|shuffled|refused|either|unchecked|include|sluice only|postgres only|flush|state|anomaly)\b ?(.*):$`)

// ReadScript parses a file.
func ReadScript(path string) (*Script, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &scriptReader{lines: strings.Split(string(text), "\n"), script: &Script{Name: path}}
	if err := r.read(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, r.at, err)
	}
	if r.script.Prose == "" {
		return nil, fmt.Errorf("%s: begins without a line of prose", path)
	}
	return r.script, nil
}

type scriptReader struct {
	script *Script
	lines  []string
	at     int // lines consumed
	next   Statement
}

func (r *scriptReader) read() error {
	for r.at < len(r.lines) {
		line := strings.TrimRight(r.lines[r.at], " \t")
		switch {
		case line == "":
			r.at++
		case strings.HasPrefix(line, "#"):
			if len(r.script.Steps) == 0 {
				r.script.Prose += strings.TrimSpace(line[1:]) + "\n"
			}
			r.at++
		case verb.MatchString(line):
			m := verb.FindStringSubmatch(line)
			r.at++
			if err := r.verb(m[1], m[2]); err != nil {
				return err
			}
		default:
			if err := r.statement(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *scriptReader) verb(name, arg string) error {
	switch name {
	case "multi":
		return r.multi()
	case "bind", "binary":
		b := Bound{Binary: name == "binary"}
		if err := json.Unmarshal([]byte(arg), &b.Text); err != nil {
			return err
		}
		r.next.Bound = &b
	case "copyfail":
		r.next.Copy = &CopyInput{Fail: arg}
	case "chunk":
		r.next.Copy = &CopyInput{}
		_, err := fmt.Sscan(arg, &r.next.Copy.Chunk)
		return err
	case "ordered":
		r.next.Ordered = true
	case "shuffled":
		r.next.Shuffled = true
	case "end":
		return fmt.Errorf("the verb end without a multi before it")
	case "include":
		other, err := ReadScript(filepath.Join(filepath.Dir(r.script.Name), arg))
		if err != nil {
			return err
		}
		r.script.Steps = append(r.script.Steps, other.Steps...)
	default:
		r.script.Steps = append(r.script.Steps, Step{Line: r.at, Verb: name, Arg: arg})
	}
	return nil
}

func (r *scriptReader) multi() error {
	line := r.at
	var text []string
	for r.at < len(r.lines) && r.lines[r.at] != "end:" {
		text = append(text, r.lines[r.at])
		r.at++
	}
	if r.at == len(r.lines) {
		return fmt.Errorf("the verb multi without an end")
	}
	r.at++
	r.script.Steps = append(r.script.Steps, Step{Line: line, Verb: "multi", Statement: Statement{SQL: strings.Join(text, "\n")}})
	return nil
}

// dollar is the opening or closing of a dollar-quoted string.
var dollar = regexp.MustCompile(`\$[A-Za-z_]*\$`)

func (r *scriptReader) statement() error {
	line := r.at + 1
	var text []string
	for open := ""; ; {
		if r.at == len(r.lines) {
			return fmt.Errorf("statement of line %d has no ; at a line's end", line)
		}
		l := r.lines[r.at]
		text = append(text, l)
		r.at++
		for _, d := range dollar.FindAllString(l, -1) {
			if open == "" {
				open = d
			} else if open == d {
				open = ""
			}
		}
		if open == "" && strings.HasSuffix(strings.TrimRight(l, " \t"), ";") {
			break
		}
	}
	st := r.next
	r.next = Statement{}
	st.SQL = strings.TrimSuffix(strings.TrimRight(strings.Join(text, "\n"), " \t"), ";")
	if copyIn.MatchString(st.SQL) && (st.Copy == nil || st.Copy.Fail == "") {
		if err := r.rows(&st); err != nil {
			return err
		}
	}
	r.script.Steps = append(r.script.Steps, Step{Line: line, Verb: "sql", Statement: st})
	return nil
}

var (
	copyIn     = regexp.MustCompile(`(?is)^\s*copy\b.*\bfrom\s+stdin\b`)
	copyBinary = regexp.MustCompile(`(?i)\bbinary\b`)
)

// rows reads the lines of a COPY up to \. as psql does. The rows of a binary COPY are written in hex.
func (r *scriptReader) rows(st *Statement) error {
	if st.Copy == nil {
		st.Copy = &CopyInput{}
	}
	var data strings.Builder
	for {
		if r.at == len(r.lines) {
			return fmt.Errorf("the rows of a COPY do not end with \\. on a line")
		}
		l := r.lines[r.at]
		r.at++
		if l == `\.` {
			break
		}
		data.WriteString(l + "\n")
	}
	st.Copy.Data = []byte(data.String())
	if copyBinary.MatchString(st.SQL) {
		raw, err := hex.DecodeString(strings.Join(strings.Fields(data.String()), ""))
		if err != nil {
			return err
		}
		st.Copy.Data = raw
	}
	return nil
}
