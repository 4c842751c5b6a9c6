package catalogpg

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Rel is one relation as Postgres describes it, and what the lake knows of it.
type Rel struct {
	OID         uint32       `json:"oid"`
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	RelKind     string       `json:"relkind"`     // pg_class.relkind: r, m, v, p, f
	Persistence string       `json:"persistence"` // p, u, t
	Owner       uint32       `json:"owner"`
	OwnerName   string       `json:"owner_name"`
	AM          string       `json:"am"` // lake for lake tables, heap for tables USING heap, "" for views
	Filenode    uint32       `json:"filenode"`
	Populated   bool         `json:"populated"` // false: a materialized view that has no rows to read
	RLS         bool         `json:"rls"`
	ForceRLS    bool         `json:"force_rls"`
	Partition   bool         `json:"partition"`
	OfType      uint32       `json:"of_type"`
	Options     []string     `json:"reloptions"`
	Parents     []uint32     `json:"parents"`
	Children    bool         `json:"children"`
	Rules       int          `json:"rules"`
	Policies    int          `json:"policies"`
	Triggers    []string     `json:"triggers"` // the user's
	Comment     string       `json:"comment"`
	Columns     []Attr       `json:"columns"` // in attnum order, without dropped ones
	Indexes     []Index      `json:"indexes"` // in oid order
	Constraints []Constraint `json:"constraints"`

	Lake *LakeRel `json:"-"` // nil: not recorded yet
}

// Attr is one column. Type is as declared; Base is what is under all domains, Elem the element type if Base is an array.
type Attr struct {
	Num          int16   `json:"attnum"`
	Name         string  `json:"name"`
	Type         uint32  `json:"type"`
	TypeName     string  `json:"type_name"` // as format_type prints it under search_path pg_catalog
	Typmod       int32   `json:"typmod"`
	TypeKind     string  `json:"type_kind"` // pg_type.typtype of Type
	TypeCategory string  `json:"type_category"`
	Base         uint32  `json:"base"`
	BaseTypmod   int32   `json:"base_typmod"`
	Elem         uint32  `json:"elem"`
	Dims         int     `json:"dims"`
	NotNull      bool    `json:"not_null"`
	Generated    string  `json:"generated"` // "" or s
	Identity     string  `json:"identity"`  // "", a or d
	Default      *string `json:"default"`   // or the generation expression
	// DefaultRelations is the relations that Default names, by their names in it.
	DefaultRelations map[string]uint32 `json:"default_relations"`
	Sequence         uint32            `json:"sequence"` // of an identity column
	HasMissing       bool              `json:"has_missing"`
	Missing          *string           `json:"missing"` // value of rows older than the column, as text
	Collation        uint32            `json:"collation"`
	CollationName    string            `json:"collation_name"`
	Comment          string            `json:"comment"`
}

// Index is one index. Attnums holds 0 for an expression.
type Index struct {
	OID              uint32   `json:"oid"`
	Name             string   `json:"name"`
	AM               string   `json:"am"`
	Unique           bool     `json:"unique"`
	Primary          bool     `json:"primary"`
	Exclusion        bool     `json:"exclusion"`
	Immediate        bool     `json:"immediate"` // false: deferrable
	Valid            bool     `json:"valid"`
	NullsNotDistinct bool     `json:"nulls_not_distinct"`
	Attnums          []int16  `json:"attnums"`
	Include          []int16  `json:"include"`
	DefaultOps       bool     `json:"default_ops"` // all operator classes are the defaults of their types
	Collations       []uint32 `json:"collations"`
	Expressions      string   `json:"expressions"`
	Predicate        string   `json:"predicate"`
}

// Constraint is one row of pg_constraint. Type: c, f, p, u, x or t.
type Constraint struct {
	OID        uint32  `json:"oid"`
	Name       string  `json:"name"`
	Type       string  `json:"type"`
	Attnums    []int16 `json:"attnums"`
	Index      uint32  `json:"index"`
	Ref        uint32  `json:"ref"`
	RefAttnums []int16 `json:"ref_attnums"`
	OnUpdate   string  `json:"on_update"`
	OnDelete   string  `json:"on_delete"`
	Match      string  `json:"match"`
	Validated  bool    `json:"validated"`
	Deferrable bool    `json:"deferrable"`
	Deferred   bool    `json:"deferred"`
	NoInherit  bool    `json:"no_inherit"`
	Def        string  `json:"def"`
}

// LakeRel is what sluice.rel records. Kind: lake, matview, view or heap; the first two are watched and can be filled.
type LakeRel struct {
	Kind        string            `json:"kind"`
	Version     int               `json:"version"`
	Namespace   string            `json:"namespace"` // as last recorded
	Name        string            `json:"name"`
	Filenode    uint32            `json:"filenode"`
	Fields      []Field           `json:"columns"`
	LastFieldID int               `json:"last_field_id"`
	Options     map[string]string `json:"options"`
}

// Field maps a column to its Iceberg field ids.
type Field struct {
	Attnum  int16   `json:"attnum"`
	ID      int     `json:"id"`
	ElemID  int     `json:"elem_id,omitempty"`
	ExactID int     `json:"exact_id,omitempty"`
	Initial *string `json:"initial,omitempty"` // text of the value that older rows have
}

// lakeJSON reads a row r of sluice.rel; null if there is none.
const lakeJSON = `case when r.oid is not null then jsonb_build_object('kind', r.kind, 'version', r.version, 'namespace', r.namespace,
	'name', r.name, 'filenode', r.filenode::bigint, 'columns', r.columns, 'last_field_id', r.last_field_id, 'options', r.options) end`

// Rels describes all relations that the lake has recorded, as of one moment, in oid order.
func (c *Catalog) Rels(ctx context.Context) ([]*Rel, error) {
	rows, _ := c.pool.Query(ctx, `select sluice.rel_state(r.oid), `+lakeJSON+`
		from sluice.rel r where exists (select from pg_class c where c.oid = r.oid) order by r.oid`)
	rels, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Rel, error) {
		var state, lake []byte
		if err := row.Scan(&state, &lake); err != nil {
			return nil, err
		}
		return decodeRel(state, lake)
	})
	if err != nil {
		return nil, fmt.Errorf("describe relations: %w", err)
	}
	return rels, nil
}

// Describe describes one relation, recorded or not; nil if there is none with this oid.
func (c *Catalog) Describe(ctx context.Context, oid uint32) (*Rel, error) {
	var state, lake []byte
	err := c.pool.QueryRow(ctx, `select sluice.rel_state(o), `+lakeJSON+`
		from (values ($1::oid)) v(o) left join sluice.rel r on r.oid = v.o`, oid).Scan(&state, &lake)
	if err != nil {
		return nil, fmt.Errorf("describe relation %d: %w", oid, err)
	}
	if state == nil {
		return nil, nil
	}
	return decodeRel(state, lake)
}

func decodeRel(state, lake []byte) (*Rel, error) {
	r := &Rel{}
	if err := json.Unmarshal(state, r); err != nil {
		return nil, fmt.Errorf("read relation: %w", err)
	}
	if lake != nil {
		r.Lake = &LakeRel{}
		if err := json.Unmarshal(lake, r.Lake); err != nil {
			return nil, fmt.Errorf("read relation %d: %w", r.OID, err)
		}
	}
	return r, nil
}

// Attr is the column with this number, or nil.
func (r *Rel) Attr(num int16) *Attr {
	for i := range r.Columns {
		if r.Columns[i].Num == num {
			return &r.Columns[i]
		}
	}
	return nil
}
