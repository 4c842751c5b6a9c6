package realtime

// Gauges count what the store holds: store accounting, neither process memory nor visible rows. What only old views still
// hold is not in it.
type Gauges struct {
	BuildingBytes, BuildingRows int64 // segments that still grow
	SealedBytes, SealedRows     int64
	TotalBytes, TotalRows       int64 // both, and in bytes also key maps, deaths and stamps
	FileKeyBytes                int64 // of TotalBytes: keys of rows in files, which stay after a flush
}

// Gauges adds up the newest state of all tables.
func (s *Store) Gauges() Gauges {
	var g Gauges
	for _, st := range s.now.Load().tables {
		st.addTo(&g)
	}
	g.TotalRows = g.BuildingRows + g.SealedRows
	g.TotalBytes += g.BuildingBytes + g.SealedBytes
	return g
}

const (
	pageBytes  = pageRows * 8
	deathBytes = 16
)

// Bytes is about TotalBytes, at the price of one load.
func (s *Store) Bytes() int64 { return s.bytes.Load() }

// TailBytes is about what a flush would give back, at the same price.
func (s *Store) TailBytes() int64 { return s.bytes.Load() - s.fileKeys.Load() }

// Weigh makes Bytes exact, as every flush and schema change does. What is applied meanwhile may count twice until the next time.
func (s *Store) Weigh() {
	g := s.Gauges()
	s.bytes.Store(g.TotalBytes)
	s.fileKeys.Store(g.FileKeyBytes)
}

func (s *State) addTo(g *Gauges) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, seg := range s.segs {
		rows, size := int64(seg.rows()), seg.bytes.Load()
		if seg == s.building() {
			g.BuildingRows, g.BuildingBytes = g.BuildingRows+rows, g.BuildingBytes+size
		} else {
			g.SealedRows, g.SealedBytes = g.SealedRows+rows, g.SealedBytes+size
		}
		for i := range seg.died {
			if seg.died[i].Load() != nil {
				g.TotalBytes += pageBytes
			}
		}
	}
	for id, list := range s.deaths {
		g.TotalBytes += int64(len(list))*deathBytes + int64(s.dead[id].GetSizeInBytes())
	}
	for _, u := range s.uniques {
		tail, files := u.Bytes()
		g.TotalBytes += tail + files
		g.FileKeyBytes += files
	}
}
