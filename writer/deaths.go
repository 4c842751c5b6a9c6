package writer

import (
	"sort"

	"github.com/RoaringBitmap/roaring/v2"
)

// rolledBack is the death of own rows that were rolled back; no row can be deleted by the transaction's first event.
const rolledBack = 1

// deaths is which own rows of a transaction died, and when. It grows with the rows that died one by one, not with those of a range.
type deaths struct {
	rows  *roaring.Bitmap  // that died, but for those of cuts; nil: none
	times map[uint32]int32 // time of death + 1; rows that have none here were rolled back
	cuts  []birth          // at time all rows below rows died
}

// at is the time of the row's death + 1, rolledBack, or 0 if it is alive.
func (d *deaths) at(row int) int32 {
	if d.rows != nil && d.rows.Contains(uint32(row)) {
		if time, ok := d.times[uint32(row)]; ok {
			return time
		}
		return rolledBack
	}
	if i := sort.Search(len(d.cuts), func(i int) bool { return d.cuts[i].rows > row }); i < len(d.cuts) {
		return int32(d.cuts[i].time + 1)
	}
	return 0
}

// bury says when a row died.
func (d *deaths) bury(row, time int) {
	if d.times == nil {
		d.times = map[uint32]int32{}
	}
	d.bitmap().Add(uint32(row))
	d.times[uint32(row)] = int32(time + 1)
}

// revive takes a bury back.
func (d *deaths) revive(row int) {
	d.rows.Remove(uint32(row))
	delete(d.times, uint32(row))
}

// void says that the rows [begin, end) were rolled back: they never were.
func (d *deaths) void(begin, end int) { d.bitmap().AddRange(uint64(begin), uint64(end)) }

// unvoid forgets rows that were rolled back: others will have their numbers.
func (d *deaths) unvoid(begin, end int) { d.bitmap().RemoveRange(uint64(begin), uint64(end)) }

func (d *deaths) bitmap() *roaring.Bitmap {
	if d.rows == nil {
		d.rows = roaring.New()
	}
	return d.rows
}

// cut says that all of the first rows died; those that had died before stay as they are.
func (d *deaths) cut(rows, time int) { d.cuts = append(d.cuts, birth{time, rows}) }

func (d *deaths) uncut() { d.cuts = d.cuts[:len(d.cuts)-1] }

// any reports whether one of the rows [begin, begin+n) died.
func (d *deaths) any(begin, n int) bool {
	if k := len(d.cuts); k > 0 && d.cuts[k-1].rows > begin {
		return true
	}
	return d.rows != nil && n > 0 && d.rows.IntersectsWithInterval(uint64(begin), uint64(begin+n))
}
