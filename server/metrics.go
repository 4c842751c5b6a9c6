package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sluice/writer/realtime"
)

// Metrics is the gateway's numbers for Prometheus, with those of its Go runtime (go_…) and its process (process_…).
func (s *Server) Metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_" + name, Help: help}, value))
	}
	held := func(pick func(realtime.Gauges) int64) func() float64 {
		return func() float64 { return float64(pick(s.Writer.Gauges())) }
	}
	gauge("tail_building_bytes", "Bytes of rows in segments that still grow.", held(func(g realtime.Gauges) int64 { return g.BuildingBytes }))
	gauge("tail_building_rows", "Rows in segments that still grow.", held(func(g realtime.Gauges) int64 { return g.BuildingRows }))
	gauge("tail_sealed_bytes", "Bytes of rows in sealed segments.", held(func(g realtime.Gauges) int64 { return g.SealedBytes }))
	gauge("tail_sealed_rows", "Rows in sealed segments.", held(func(g realtime.Gauges) int64 { return g.SealedRows }))
	gauge("tail_bytes", "Bytes of all rows not yet in files, with key maps and stamps.", held(func(g realtime.Gauges) int64 { return g.TotalBytes }))
	gauge("tail_rows", "Rows not yet in files.", held(func(g realtime.Gauges) int64 { return g.TotalRows }))
	gauge("transaction_bytes", "Bytes of rows of open transactions in memory.", func() float64 { return float64(s.Writer.OpenBytes()) })
	gauge("position_visible", "Position of the newest visible transaction.", func() float64 { return float64(s.Writer.Visible()) })
	gauge("position_flushed", "Position up to which everything is in files.", func() float64 { return float64(s.Writer.Progress()) })
	gauge("sessions", "Client connections.", func() float64 { return float64(s.live.Load()) })
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sluice_catalog_commits_total",
		Help: "Catalog transactions that moved tables since the start; one for all tables of a flush or a transaction."},
		func() float64 { return float64(s.Writer.Flips()) }))
	return r
}
