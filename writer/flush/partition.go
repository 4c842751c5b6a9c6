package flush

import (
	"encoding/binary"
	"fmt"
	"math"

	"sluice/writer/realtime"
	"sluice/writer/table"
)

// dealer deals the rows of a table out to partitions. Partitions are kept in the order in which they were first met, so that a
// plan depends on the rows alone.
type dealer struct {
	t         *Table
	target    Target
	partition Partition
	lanes     map[string]*filler
	bucket    int // of what comes next, if the table has buckets beside its spec
}

func newDealer(t *Table, target Target, p Partition) *dealer {
	return &dealer{t: t, target: target, partition: p, lanes: map[string]*filler{}, bucket: int(target.NextFile)}
}

// deal deals out the tail.
func (d *dealer) deal(c *realtime.TableCut) error {
	if d.target.Buckets <= 1 {
		return c.Tail(d.add)
	}
	var last table.Position
	return c.Batches(func(r realtime.Rows, at table.Position) error {
		if at != last {
			d.bucket, last = d.bucket+1, at
		}
		return d.add(r)
	})
}

func (d *dealer) add(r realtime.Rows) error {
	if len(d.t.Def.Schema.Spec) == 0 {
		d.lane(nil, "").add(r)
		return nil
	}
	var order []string
	sels := map[string][]int32{}
	err := each(r, func(i int32) error {
		values, err := d.partition(d.t.Def.Schema, r.Batch, int(i))
		if err != nil {
			return fmt.Errorf("partition of row %d: %w", r.First+uint64(i), err)
		}
		key := string(appendKey(nil, values))
		if d.lane(values, key); sels[key] == nil {
			order = append(order, key)
		}
		sels[key] = append(sels[key], i)
		return nil
	})
	for _, key := range order {
		d.lane(nil, key).add(realtime.Rows{Batch: r.Batch, Sel: sels[key], First: r.First})
	}
	return err
}

func (d *dealer) lane(values []any, key string) *filler {
	if d.target.Buckets > 1 {
		key = fmt.Sprintf("%d/%s", d.bucket%d.target.Buckets, key)
	}
	f := d.lanes[key]
	if f == nil {
		f = &filler{t: d.t, target: d.target, values: values}
		d.lanes[key] = f
	}
	return f
}

func each(r realtime.Rows, fn func(i int32) error) error {
	if r.Sel == nil {
		for i := range int32(r.Batch.Rows) {
			if err := fn(i); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range r.Sel {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// Key is equal for the rows of one partition, and for no others.
func (p Partition) Key(s *table.Schema, b *table.Batch, row int) (string, error) {
	if len(s.Spec) == 0 {
		return "", nil
	}
	values, err := p(s, b, row)
	return string(appendKey(nil, values)), err
}

// appendKey makes equal bytes of equal partition values.
func appendKey(b []byte, values []any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			b = append(b, 0)
		case bool:
			b = append(b, 1, 0)
			if v {
				b[len(b)-1] = 1
			}
		case int32:
			b = binary.LittleEndian.AppendUint32(append(b, 2), uint32(v))
		case int64:
			b = binary.LittleEndian.AppendUint64(append(b, 3), uint64(v))
		case float32:
			b = binary.LittleEndian.AppendUint32(append(b, 4), math.Float32bits(v))
		case float64:
			b = binary.LittleEndian.AppendUint64(append(b, 5), math.Float64bits(v))
		case [16]byte:
			b = append(append(b, 6), v[:]...)
		case string:
			b = append(binary.AppendUvarint(append(b, 7), uint64(len(v))), v...)
		case []byte:
			b = append(binary.AppendUvarint(append(b, 8), uint64(len(v))), v...)
		default:
			b = fmt.Appendf(append(b, 9), "%v\x00", v)
		}
	}
	return b
}
