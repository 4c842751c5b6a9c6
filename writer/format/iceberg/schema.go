package iceberg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	ice "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/datafile"
	"sluice/writer/table"
)

// toSchema is s in Iceberg's terms, with exactly its field ids. Companions are columns of their own after all others, those
// whose id is in companions. Columns of the primary key become identifier fields if all of them may be.
func toSchema(s *table.Schema, companions map[int]bool, version int) (*ice.Schema, error) {
	var fields []ice.NestedField
	for i := range s.Columns {
		f, err := toField(&s.Columns[i], version)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", s.Columns[i].Name, err)
		}
		fields = append(fields, f)
	}
	for i, c := range s.Columns {
		if companions[c.ExactID] {
			fields = append(fields, ice.NestedField{ID: c.ExactID, Name: datafile.CompanionName(s, i), Type: ice.PrimitiveTypes.String,
				Doc: "exact text of " + c.Name + " where its type cannot hold the value"})
		}
	}
	return ice.NewSchemaWithIdentifiers(0, identifiers(s), fields...), nil
}

func toField(c *table.Column, version int) (ice.NestedField, error) {
	f := ice.NestedField{ID: c.FieldID, Name: c.Name, Type: toType(c.Type, c.ElemID), Required: c.NotNull && !c.Exact, Doc: c.Doc}
	if c.Initial == nil {
		return f, nil
	}
	if version < 3 {
		return f, fmt.Errorf("an initial value needs format version 3")
	}
	v, err := datafile.ParseText(c.Type, *c.Initial)
	switch {
	case err != nil && c.Exact:
		return f, nil // infinity and its like: engines see NULL
	case err != nil:
		return f, err
	}
	if f.InitialDefault, err = toJSON(v); err != nil {
		return f, err
	}
	f.WriteDefault = f.InitialDefault
	return f, nil
}

func identifiers(s *table.Schema) []int {
	ids := []int{}
	for _, k := range s.Key {
		c := s.Columns[k]
		if !c.NotNull || c.Exact || c.Type.Kind == table.Float32 || c.Type.Kind == table.Float64 || c.Type.Kind == table.List {
			return []int{}
		}
		ids = append(ids, c.FieldID)
	}
	return ids
}

var primitives = map[table.Kind]ice.Type{
	table.Bool: ice.PrimitiveTypes.Bool, table.Int32: ice.PrimitiveTypes.Int32, table.Int64: ice.PrimitiveTypes.Int64,
	table.Float32: ice.PrimitiveTypes.Float32, table.Float64: ice.PrimitiveTypes.Float64, table.Date: ice.PrimitiveTypes.Date,
	table.Time: ice.PrimitiveTypes.Time, table.Timestamp: ice.PrimitiveTypes.Timestamp,
	table.TimestampTZ: ice.PrimitiveTypes.TimestampTz, table.UUID: ice.PrimitiveTypes.UUID, table.String: ice.PrimitiveTypes.String,
	table.Binary: ice.PrimitiveTypes.Binary,
}

func toType(t table.Type, elemID int) ice.Type {
	switch t.Kind {
	case table.Decimal64, table.Decimal128:
		return ice.DecimalTypeOf(t.Precision, t.Scale)
	case table.List:
		return &ice.ListType{ElementID: elemID, Element: toType(*t.Elem, 0)}
	}
	return primitives[t.Kind]
}

// plainName is what iceberg-go can use as the name of a partition field, which is an Avro name in manifests.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func toSpec(s *table.Schema) (ice.PartitionSpec, error) {
	fields := make([]ice.PartitionField, len(s.Spec))
	decimal := "" // the one decimal type among the partition values: iceberg-go gives all of them the same Avro name
	for i, p := range s.Spec {
		t, err := ice.ParseTransform(p.Transform)
		if err != nil {
			return ice.PartitionSpec{}, fmt.Errorf("partition field %s: %w", p.Name, err)
		}
		if !plainName.MatchString(p.Name) {
			return ice.PartitionSpec{}, fmt.Errorf("partition field %q: the name is not of letters, digits and _", p.Name)
		}
		c := source(s, p)
		if c == nil {
			return ice.PartitionSpec{}, fmt.Errorf("partition field %s: no column with field id %d", p.Name, p.Source)
		}
		if _, unknown := t.(ice.UnknownTransform); unknown || !t.CanTransform(toType(c.Type, c.ElemID)) {
			return ice.PartitionSpec{}, fmt.Errorf("partition field %s: no transform %s for %s", p.Name, p.Transform, c.Type)
		}
		if r := t.ResultType(toType(c.Type, 0)).String(); strings.HasPrefix(r, "decimal") {
			if decimal != "" && decimal != r {
				return ice.PartitionSpec{}, fmt.Errorf("partition field %s: %s beside %s in one spec is not supported", p.Name, r, decimal)
			}
			decimal = r
		}
		fields[i] = ice.PartitionField{SourceIDs: []int{p.Source}, FieldID: p.FieldID, Name: p.Name, Transform: t}
	}
	return ice.NewPartitionSpec(fields...), nil
}

// source is the column that a partition field is computed from, nil if it is not there.
func source(s *table.Schema, p table.PartitionField) *table.Column {
	for i := range s.Columns {
		if s.Columns[i].FieldID == p.Source {
			return &s.Columns[i]
		}
	}
	return nil
}

// lastID is the largest field id that s uses or reserves.
func lastID(s *table.Schema) int {
	last := 0
	if s != nil {
		for _, c := range s.Columns {
			last = max(last, c.FieldID, c.ElemID, c.ExactID)
		}
	}
	return last
}

// changeSchema puts the edit's schema and spec into b if they differ from base's.
func changeSchema(b *icetable.MetadataBuilder, base icetable.Metadata, s *table.Schema, companions map[int]bool) error {
	next, err := toSchema(s, companions, base.Version())
	if err != nil {
		return err
	}
	same, err := sameSchema(next, base.CurrentSchema())
	if err != nil {
		return err
	}
	if !same {
		if err := b.AddSchema(next); err != nil {
			return err
		}
		if err := b.SetCurrentSchemaID(-1); err != nil {
			return err
		}
	}
	spec, err := toSpec(s)
	if err != nil {
		return err
	}
	current := base.PartitionSpec()
	if spec.CompatibleWith(&current) && sameFieldIDs(spec, current) {
		return nil
	}
	if err := b.AddPartitionSpec(&spec, false); err != nil {
		return err
	}
	return b.SetDefaultSpecID(-1)
}

// sameSchema compares what metadata would say. Schema.Equals does not do: a default that was read back has another Go type.
func sameSchema(next, current *ice.Schema) (bool, error) {
	next.ID = current.ID
	x, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(current)
	return bytes.Equal(x, y), err
}

func sameFieldIDs(x, y ice.PartitionSpec) bool {
	if x.NumFields() != y.NumFields() {
		return false
	}
	for i := range x.NumFields() {
		if x.Field(i).FieldID != y.Field(i).FieldID || x.Field(i).Name != y.Field(i).Name {
			return false
		}
	}
	return true
}

// companionsOf is the ids of the companions that the table has, or has after files are added: those of the current schema
// and those in the files.
func companionsOf(current *ice.Schema, s *table.Schema, files []int) map[int]bool {
	ids := map[int]bool{}
	for _, c := range s.Columns {
		if c.ExactID == 0 {
			continue
		}
		if _, ok := current.FindFieldByID(c.ExactID); ok || slices.Contains(files, c.ExactID) {
			ids[c.ExactID] = true
		}
	}
	return ids
}
