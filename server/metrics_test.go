package server_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is the numbers that /metrics shows.
func metrics(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	must(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// TestMetrics: the tail's six gauges follow rows into it, into sealed segments and out of it; catalog commits count one for a transaction
// over four tables, and none for one that writes nothing.
//
// claims: P59 S1 S21
func TestMetrics(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table m1 (id int); create table m2 (id int); create table m3 (id int); create table m4 (id int)")
	c.exec("select sluice.flush()")
	before := metrics(t, g.metrics)
	look := func(when string, want map[string]float64) {
		t.Helper()
		now := metrics(t, g.metrics)
		for name, n := range want {
			if got, known := now[name]; !known || got-before[name] != n {
				t.Errorf("%s: %s is %v, was %v, want %v more", when, name, got, before[name], n)
			}
		}
	}
	c.exec("insert into m1 select generate_series(1, 10)")
	look("small", map[string]float64{"sluice_tail_building_rows": 10, "sluice_tail_sealed_rows": 0, "sluice_tail_rows": 10, "sluice_catalog_commits_total": 0})
	c.exec("insert into m2 select generate_series(1, 20000)")
	look("large", map[string]float64{"sluice_tail_building_rows": 10, "sluice_tail_sealed_rows": 20000, "sluice_tail_rows": 20010})
	now := metrics(t, g.metrics)
	if building, sealed, all := now["sluice_tail_building_bytes"], now["sluice_tail_sealed_bytes"], now["sluice_tail_bytes"]; building < 10*4 || sealed < 20000*4 || all < building+sealed {
		t.Errorf("%v bytes building, %v sealed, %v in all", building, sealed, all)
	}
	c.exec("select sluice.flush()")
	look("flushed", map[string]float64{"sluice_tail_building_rows": 0, "sluice_tail_building_bytes": 0, "sluice_tail_sealed_rows": 0, "sluice_tail_sealed_bytes": 0,
		"sluice_tail_rows": 0, "sluice_tail_bytes": 0, "sluice_catalog_commits_total": 1})
	c.exec("set synchronous_commit = remote_apply")
	c.exec("begin; insert into m1 values (1); insert into m2 values (1); insert into m3 values (1); insert into m4 values (1); commit")
	look("four tables", map[string]float64{"sluice_catalog_commits_total": 2})
	c.exec("begin; delete from m1 where id < 0; commit")
	look("nothing", map[string]float64{"sluice_catalog_commits_total": 2})
	c.exec("drop table m1, m2, m3, m4")
	look("drop", map[string]float64{"sluice_catalog_commits_total": 3})
}
