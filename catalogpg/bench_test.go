package catalogpg_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sluice/catalogpg"
)

// BenchmarkFill copies rows into a shadow with a key and a text column, updates one row, reads the change and rolls back.
func BenchmarkFill(b *testing.B) {
	for _, n := range []int{1, 1000, 10000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchSession(b)
			ids, texts := make([]string, n), make([]string, n)
			for i := range n {
				ids[i], texts[i] = fmt.Sprint(i), fmt.Sprintf(`"row number %d"`, i)
			}
			cols := []string{"{" + strings.Join(ids, ",") + "}", "{" + strings.Join(texts, ",") + "}"}
			rel := s.oid("bench")
			for b.Loop() {
				s.exec("begin; savepoint a")
				f, err := catalogpg.DecodeFill(s.call(s.FillCall(rel, []int16{1, 2}, cols, n))[0])
				if err != nil {
					b.Fatal(err)
				}
				s.exec("savepoint b; update bench set v = 'x' where id = 0")
				if rows := s.call(s.ChangeCall(rel, f)); len(rows) != 2 {
					b.Fatalf("%d changes", len(rows))
				}
				s.exec("rollback")
			}
		})
	}
}

func BenchmarkCounts(b *testing.B) {
	s := benchSession(b)
	for b.Loop() {
		s.call(catalogpg.CountsCall())
	}
}

func BenchmarkAttach(b *testing.B) {
	for b.Loop() {
		x, err := cat.Attach(context.Background(), "lake", "lake", nil)
		if err != nil {
			b.Fatal(err)
		}
		x.Close()
	}
}

func benchSession(b *testing.B) *session {
	x, err := cat.Attach(context.Background(), "lake", "lake", nil)
	if err != nil {
		b.Fatal(err)
	}
	s := &session{x, b, "public"}
	s.exec("set client_min_messages = warning; drop table if exists bench; create table bench (id int primary key, v text)")
	s.watch("bench")
	b.Cleanup(func() {
		s.exec("drop table bench")
		s.Close()
	})
	return s
}
