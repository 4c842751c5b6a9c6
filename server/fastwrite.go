package server

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// Changes by key in the fast lane: UPDATE and DELETE of the rows with known keys, and ON CONFLICT.

// assignment is a compiled column = expression.
type assignment struct {
	at   int // the column's place
	expr sql.Expr
}

// keyPlan is a compiled UPDATE or DELETE by key.
type keyPlan struct {
	rel       *rel
	where     *sql.Lookup
	set       []assignment // nil: DELETE
	returning *projection
}

func (kp *keyPlan) result() *projection { return kp.returning }

// conflictPlan is a compiled ON CONFLICT.
type conflictPlan struct {
	unique uint32
	set    []assignment // nil: DO NOTHING
	old    bool         // the old row matters to the new one
}

// compileKeyWrite compiles an UPDATE or DELETE by key, or returns nil.
func (r *rel) compileKeyWrite(st *sql.Statement) *keyPlan {
	w := st.KeyWrite()
	if w == nil {
		return nil
	}
	kp := &keyPlan{rel: r, where: w.Where}
	var ok bool
	if kp.returning, ok = r.projectReturning(w.Returning); !ok {
		return nil
	}
	if st.Kind == sql.Delete {
		return kp
	}
	if kp.set, ok = r.assignments(w.Set, false); !ok {
		return nil
	}
	return kp
}

// compileConflict compiles an ON CONFLICT; ok is false if it is not simple. Without a target all constraints count: there has to be one.
func (r *rel) compileConflict(c *sql.Conflict) (cp *conflictPlan, ok bool) {
	u := r.arbiter(c)
	if u == nil {
		return nil, false
	}
	cp = &conflictPlan{unique: u.OID}
	if c.Set == nil {
		return cp, true
	}
	if cp.set, ok = r.assignments(c.Set, true); !ok {
		return nil, false
	}
	cp.old = r.needsOld(u, cp.set)
	return cp, true
}

func (r *rel) arbiter(c *sql.Conflict) *unique {
	if c.Columns == nil && c.Constraint == "" {
		if len(r.Uniques) == 1 {
			return &r.Uniques[0]
		}
		return nil
	}
	for i := range r.Uniques {
		u := &r.Uniques[i]
		if c.Constraint != "" && u.Name == c.Constraint {
			return u
		}
		if c.Columns != nil && len(c.Columns) == len(u.Cols) && !slices.ContainsFunc(c.Columns, func(name string) bool { return !u.has(r.Schema.Index(name)) }) {
			return u
		}
	}
	return nil
}

// assignments compiles the targets of a SET: columns that are in no key, each once, from values and columns that need no conversion.
func (r *rel) assignments(list []sql.Assignment, excluded bool) ([]assignment, bool) {
	var out []assignment
	for _, a := range list {
		at := r.Schema.Index(a.Column)
		if at < 0 || !r.settable(at) || slices.ContainsFunc(out, func(o assignment) bool { return o.at == at }) {
			return nil, false
		}
		if !r.plainExpr(at, a.Value, excluded) {
			return nil, false
		}
		out = append(out, assignment{at, a.Value})
	}
	return out, len(out) > 0
}

func (r *rel) settable(at int) bool {
	a := r.Columns[at].attr
	return !r.Columns[at].Generated && a.Identity == "" && a.TypeKind != "d" &&
		!slices.ContainsFunc(r.Uniques, func(u unique) bool { return u.has(at) })
}

// plainExpr reports whether an expression gives values of a column's type as they stand: a value that the column's input takes, a column
// of the same type, a sum of integers, or joined texts.
func (r *rel) plainExpr(at int, e sql.Expr, excluded bool) bool {
	for _, t := range e.Terms() {
		if t.Column != "" && (r.Schema.Index(t.Column) < 0 || t.Excluded && !excluded) {
			return false
		}
	}
	if e.Op == 0 {
		return e.Left.Column == "" || r.sameType(at, r.Schema.Index(e.Left.Column))
	}
	if e.Op == '|' {
		return r.text(at) && !slices.ContainsFunc(e.Joined, func(t sql.Term) bool { return !r.textTerm(t) })
	}
	// One operand at least is a column: that gives the other, if it is a parameter, its type.
	if !integer(r.Columns[at].Codec.OID()) || e.Left.Column == "" && e.Right.Column == "" {
		return false
	}
	return r.addend(e.Left) && r.addend(e.Right)
}

func (r *rel) sameType(a, b int) bool {
	x, y := r.Columns[a].attr, r.Columns[b].attr
	return x.Base == y.Base && x.BaseTypmod == y.BaseTypmod && x.TypeKind == y.TypeKind
}

func (r *rel) text(at int) bool {
	return r.Columns[at].Codec.OID() == pgvalue.OIDText && r.Columns[at].attr.TypeKind == "b"
}

func (r *rel) textTerm(t sql.Term) bool {
	if t.Column != "" {
		return r.text(r.Schema.Index(t.Column))
	}
	return t.Value.Kind == sql.String || t.Value.Kind == sql.Param
}

func (r *rel) addend(t sql.Term) bool {
	if t.Column != "" {
		return integer(r.Columns[r.Schema.Index(t.Column)].Codec.OID())
	}
	return t.Value.Kind == sql.Integer || t.Value.Kind == sql.Param
}

func integer(oid uint32) bool {
	return oid == pgvalue.OIDInt2 || oid == pgvalue.OIDInt4 || oid == pgvalue.OIDInt8
}

// needsOld reports whether the old row matters to the new version: it has columns that are neither set nor known from the key, or a key
// that may be written in other ways.
func (r *rel) needsOld(u *unique, set []assignment) bool {
	for i := range r.Columns {
		assigned := slices.IndexFunc(set, func(a assignment) bool { return a.at == i })
		switch {
		case assigned >= 0 && !set[assigned].reads():
		case assigned < 0 && u.has(i) && oneSpelling[r.Schema.Columns[i].Type.Kind] && r.Columns[i].Codec.OID() != pgvalue.OIDBpchar:
		default:
			return true
		}
	}
	return false
}

// oneSpelling is the kinds whose equal values are the same bytes.
var oneSpelling = map[table.Kind]bool{table.Int32: true, table.Int64: true, table.UUID: true, table.Date: true}

// reads reports whether the expression looks at the old row.
func (a *assignment) reads() bool {
	return slices.ContainsFunc(a.expr.Terms(), func(t sql.Term) bool { return t.Column != "" && !t.Excluded })
}

// bound is assignments with their values.
type bound struct {
	rel    *rel
	set    []assignment
	values []*table.Vec   // one value each; nil: the expression looks at rows
	sums   []operands     // of those that are sums
	texts  [][]*table.Vec // of those that join texts: one value for each term, nil for a column
}

// operands is what a sum adds, as far as it does not look at rows.
type operands struct {
	width       uint32 // the type of the sum: the wider one of its operands' types
	left, right operand
}

// operand is a column, or a value.
type operand struct {
	term sql.Term
	x    int64
	null bool
}

// bindSet converts the values of assignments, used or not: Postgres, too, finds a bad one before it looks for rows.
func (r *rel) bindSet(set []assignment, b params, env *pgvalue.Env) (*bound, error) {
	out := &bound{rel: r, set: set, values: make([]*table.Vec, len(set)), sums: make([]operands, len(set)), texts: make([][]*table.Vec, len(set))}
	for i, a := range set {
		var err error
		switch a.expr.Op {
		case 0:
			out.values[i], err = r.bindTerm(a.at, a.expr.Left, b, env)
		case '|':
			out.texts[i], err = r.bindTexts(a, b, env)
		default:
			out.sums[i], err = r.bindSum(a.expr, b)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bindTerm is a value as one of the column at; nil for a column.
func (r *rel) bindTerm(at int, t sql.Term, b params, env *pgvalue.Env) (*table.Vec, error) {
	if t.Column != "" {
		return nil, nil
	}
	v := table.NewVec(r.Schema.Columns[at].Type)
	if err := r.put(v, at, t.Value, b, env); err != nil {
		return nil, err
	}
	if v.Len == 0 { // a default that has to be computed
		return nil, errNotFast
	}
	return v, nil
}

func (r *rel) bindTexts(a assignment, b params, env *pgvalue.Env) (out []*table.Vec, err error) {
	for _, t := range a.expr.Joined {
		v, err := r.bindTerm(a.at, t, b, env)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// changing is rows as they were and as they were proposed: what expressions see.
type changing struct {
	*bound
	old, proposed *table.Batch
	rows          int
}

// apply makes the newer versions. errNotFast if a value is not plain.
func (c *changing) apply() (*table.Batch, error) {
	base := c.old
	if base == nil {
		base = c.proposed
	}
	b := &table.Batch{Schema: base.Schema, Rows: c.rows, Cols: slices.Clone(base.Cols)}
	for i, a := range c.set {
		v, err := c.eval(i, a)
		if err == nil && c.rel.Columns[a.at].attr.NotNull && holdsNull(v) {
			err = errNotFast
		}
		if err != nil {
			return nil, err
		}
		b.Cols[a.at] = v
	}
	return b, nil
}

func holdsNull(v *table.Vec) bool {
	if v.Nulls == 0 {
		return false
	}
	for i := range v.Len {
		if pgvalue.IsNull(v, i) {
			return true
		}
	}
	return false
}

func (c *changing) eval(i int, a assignment) (*table.Vec, error) {
	one := c.values[i]
	switch {
	case a.expr.Op == '|':
		return c.join(i, a), nil
	case a.expr.Op != 0:
		return c.sum(i, a)
	case one == nil:
		return c.column(a.expr.Left), nil
	case c.rows == 1:
		return one, nil
	}
	v := table.NewVec(one.Type)
	for range c.rows {
		v.AppendFrom(one, 0)
	}
	return v, nil
}

func (c *changing) column(t sql.Term) *table.Vec {
	b := c.old
	if t.Excluded {
		b = c.proposed
	}
	return b.Cols[c.rel.Schema.Index(t.Column)]
}

// bindSum reads the values that a sum adds. A parameter beside a column has its type unless it was declared with another.
func (r *rel) bindSum(e sql.Expr, b params) (o operands, err error) {
	o.width = pgvalue.OIDInt2
	for _, t := range []sql.Term{e.Left, e.Right} {
		one, oid, err := r.operand(t, r.otherType(e), b)
		if err != nil {
			return o, err
		}
		if oid == pgvalue.OIDInt8 || oid == pgvalue.OIDInt4 && o.width == pgvalue.OIDInt2 {
			o.width = oid
		}
		o.left, o.right = o.right, one
	}
	return o, nil
}

// operand is a term and its type.
func (r *rel) operand(t sql.Term, other uint32, b params) (o operand, oid uint32, err error) {
	o.term = t
	switch {
	case t.Column != "":
		return o, r.Columns[r.Schema.Index(t.Column)].Codec.OID(), nil
	case t.Value.Kind == sql.Param:
		o.x, o.null, err = b.integer(t.Value.Number, other)
		return o, b.declared(t.Value.Number, other), err
	}
	if o.x, err = strconv.ParseInt(t.Value.Text, 10, 64); err != nil {
		return o, 0, errNotFast
	}
	if fitsInteger(pgvalue.OIDInt4, o.x) { // a number is an int4 if it fits one
		return o, pgvalue.OIDInt4, nil
	}
	return o, pgvalue.OIDInt8, nil
}

// sum adds or subtracts integers. Whatever overflows is Postgres' to report.
func (c *changing) sum(i int, a assignment) (*table.Vec, error) {
	v, col, o := table.NewVec(c.rel.Schema.Columns[a.at].Type), c.rel.Columns[a.at].Codec.OID(), &c.sums[i]
	for row := range c.rows {
		x, xnull := c.integer(&o.left, row)
		y, ynull := c.integer(&o.right, row)
		if xnull || ynull {
			v.AppendNull()
			continue
		}
		if a.expr.Op == '-' {
			if y == math.MinInt64 {
				return nil, errNotFast
			}
			y = -y
		}
		sum := x + y
		if (sum > x) != (y > 0) && y != 0 || !fitsInteger(o.width, sum) || !fitsInteger(col, sum) {
			return nil, errNotFast
		}
		if v.Type.Kind == table.Int64 {
			v.AppendInt64(sum)
		} else {
			v.AppendInt32(int32(sum))
		}
	}
	return v, nil
}

// join joins texts; NULL if one is.
func (c *changing) join(i int, a assignment) *table.Vec {
	v := table.NewVec(c.rel.Schema.Columns[a.at].Type)
	var text []byte
	for row := range c.rows {
		var null bool
		text = text[:0]
		for k, t := range a.expr.Joined {
			one, at := c.texts[i][k], 0
			if one == nil {
				one, at = c.column(t), row
			}
			if null = one.IsNull(at); null {
				break
			}
			text = append(text, one.Bytes(at)...)
		}
		if null {
			v.AppendNull()
		} else {
			v.AppendBytes(text)
		}
	}
	return v
}

// integer is an operand in a row.
func (c *changing) integer(o *operand, row int) (x int64, null bool) {
	if o.term.Column == "" {
		return o.x, o.null
	}
	v := c.column(o.term)
	if v.IsNull(row) {
		return 0, true
	}
	if v.Type.Kind == table.Int64 {
		return v.Int64(row), false
	}
	return int64(v.Int32(row)), false
}

func fitsInteger(oid uint32, x int64) bool {
	switch oid {
	case pgvalue.OIDInt2:
		return x == int64(int16(x))
	case pgvalue.OIDInt4:
		return x == int64(int32(x))
	}
	return true
}

// otherType is the type of the column in a sum: a parameter beside it has the same.
func (r *rel) otherType(e sql.Expr) uint32 {
	name := e.Left.Column
	if name == "" {
		name = e.Right.Column
	}
	return r.Columns[r.Schema.Index(name)].Codec.OID()
}

// integer is parameter n as an integer, whose type is oid unless it was declared as another.
func (p params) integer(n int, oid uint32) (x int64, null bool, err error) {
	if n > p.len() {
		return 0, false, errNotFast
	}
	oid = p.declared(n, oid)
	val, binary := p.at(n)
	switch {
	case !integer(oid):
		return 0, false, errNotFast
	case val == nil:
		return 0, true, nil
	case binary:
		return binaryInteger(val)
	}
	if x, err = strconv.ParseInt(string(val), 10, 64); err != nil || !fitsInteger(oid, x) {
		return 0, false, errNotFast
	}
	return x, false, nil
}

func binaryInteger(val []byte) (int64, bool, error) {
	switch len(val) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(val))), false, nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(val))), false, nil
	case 8:
		return int64(binary.BigEndian.Uint64(val)), false, nil
	}
	return 0, false, errNotFast
}

// bind makes an INSERT with ON CONFLICT of rows.
func (cp *conflictPlan) bind(ip *insertPlan, batch *table.Batch, b params, env *pgvalue.Env) (func(context.Context, *writer.Txn) (written, error), error) {
	set, err := ip.rel.bindSet(cp.set, b, env)
	if err != nil {
		return nil, err
	}
	var merge *writer.Merge
	var versions *table.Batch
	if cp.set != nil {
		merge = &writer.Merge{Old: cp.old, Rows: func(old, proposed *table.Batch) (_ *table.Batch, err error) {
			c := changing{set, old, proposed, proposed.Rows}
			versions, err = c.apply()
			return versions, err
		}}
	}
	return func(ctx context.Context, t *writer.Txn) (w written, err error) {
		inserted, merged, err := t.Upsert(ctx, table.ID(ip.rel.OID), cp.unique, batch, merge)
		if w.rows = len(inserted) + len(merged); err == nil && ip.returning != nil {
			w.batch = settled(batch, inserted, merged, versions)
		}
		return w, err
	}, nil
}

// settled is the rows of a batch that an ON CONFLICT inserted and, as they are now, those that it merged, in the order of the batch.
func settled(batch *table.Batch, inserted, merged []int32, versions *table.Batch) *table.Batch {
	if len(inserted) == batch.Rows {
		return batch
	}
	out := table.NewBatch(batch.Schema)
	for i, m := 0, 0; i < len(inserted) || m < len(merged); {
		if m == len(merged) || i < len(inserted) && inserted[i] < merged[m] {
			out.AppendRow(batch, int(inserted[i]))
			i++
			continue
		}
		out.AppendRow(versions, m)
		m++
	}
	return out
}

// bind implements writePlan.
func (kp *keyPlan) bind(s *session, _ *portal, b params) (*fastWrite, error) {
	set, ok := kp.rel.exactKeys(kp.where, b)
	if !ok {
		return nil, errNotFast
	}
	values, err := kp.rel.bindSet(kp.set, b, s.env)
	if err != nil {
		return nil, err
	}
	tag := "UPDATE "
	if kp.set == nil {
		tag = "DELETE "
	}
	return &fastWrite{rel: kp.rel, tag: tag, returning: kp.returning, run: func(ctx context.Context, t *writer.Txn) (written, error) {
		return kp.run(ctx, s, t, set, values)
	}}, nil
}

// exactKeys is the keys that a condition names; ok is false if they are not those of one unique constraint.
func (r *rel) exactKeys(where *sql.Lookup, b params) (set keySet, ok bool) {
	sets, ok := r.lookup(where, false, b.value)
	if !ok {
		return set, false
	}
	for i := range r.Uniques {
		if u := &r.Uniques[i]; u.OID == sets[0].unique && len(u.Cols) == len(where.Rows[0]) {
			return sets[0], true
		}
	}
	return set, false
}

// byKey reports whether the condition names all columns of one unique constraint, whatever its parameters are.
func (kp *keyPlan) byKey() bool {
	named := kp.where.Rows[0]
	for i := range kp.rel.Uniques {
		u := &kp.rel.Uniques[i]
		if len(u.Cols) == len(named) && !slices.ContainsFunc(u.Cols, func(c int) bool { _, ok := named[kp.rel.Columns[c].Name]; return !ok }) {
			return true
		}
	}
	return false
}

// run changes the rows with the given keys. A row that another transaction changed meanwhile is looked up again in its newest version.
func (kp *keyPlan) run(ctx context.Context, s *session, t *writer.Txn, set keySet, values *bound) (written, error) {
	id := table.ID(kp.rel.OID)
	for {
		rows, refs, err := s.byKeys(ctx, &attempt{}, t.Statement(), kp.rel, []keySet{set})
		if err != nil || len(refs) == 0 {
			return written{}, err
		}
		if kp.set == nil {
			err = t.Delete(ctx, id, refs, lock.ForUpdate)
		} else {
			c := changing{bound: values, old: rows, rows: rows.Rows}
			if rows, err = c.apply(); err == nil {
				_, err = t.Update(ctx, id, refs, rows, lock.ForNoKeyUpdate)
			}
		}
		var moved *writer.RowMoved
		if !errors.As(err, &moved) {
			return written{len(refs), rows}, err
		}
		if t.Isolation() != writer.ReadCommitted {
			return written{}, errNotFast
		}
	}
}

// elementTypes is the types whose arrays INSERT … SELECT unnest may bring, by the names that the grammar gives them.
var elementTypes = map[string]uint32{
	"bool": pgvalue.OIDBool, "int2": pgvalue.OIDInt2, "int4": pgvalue.OIDInt4, "int8": pgvalue.OIDInt8, "float4": pgvalue.OIDFloat4,
	"float8": pgvalue.OIDFloat8, "numeric": pgvalue.OIDNumeric, "text": pgvalue.OIDText, "varchar": pgvalue.OIDVarchar, "bytea": pgvalue.OIDBytea,
	"uuid": pgvalue.OIDUUID, "date": pgvalue.OIDDate, "time": pgvalue.OIDTime, "timestamp": pgvalue.OIDTimestamp,
	"timestamptz": pgvalue.OIDTimestampTZ, "json": pgvalue.OIDJSON, "jsonb": pgvalue.OIDJSONB,
}

// compileArrays makes the codecs of array parameters; false if one is not of its column's type.
func (ip *insertPlan) compileArrays(list []sql.Array) bool {
	for i, a := range list {
		c := &ip.rel.Columns[ip.cols[i]]
		oid := elementTypes[a.Type]
		if oid == 0 || oid != c.attr.Base || c.attr.TypeKind != "b" || c.attr.Identity == "a" {
			return false
		}
		codec, err := pgvalue.NewCodec(pgvalue.ArrayOf(oid), c.attr.BaseTypmod, table.ListOf(c.Codec.Type()))
		if err != nil {
			return false
		}
		ip.arrays = append(ip.arrays, arrayParam{a.Param, codec})
	}
	return true
}

// unnest makes the elements of the array parameters rows, as unnest does: the shorter ones end in NULLs.
func (ip *insertPlan) unnest(batch *table.Batch, b params, env *pgvalue.Env) error {
	for i, a := range ip.arrays {
		v, err := a.elements(b, env)
		if err != nil {
			return err
		}
		batch.Cols[ip.cols[i]] = v
		batch.Rows = max(batch.Rows, v.Len)
	}
	for _, at := range ip.cols {
		v := batch.Cols[at]
		for v.Len < batch.Rows {
			v.AppendNull()
		}
		if ip.rel.Columns[at].attr.NotNull && holdsNull(v) {
			return errNotFast
		}
	}
	return ip.rel.fill(batch, ip.rest, batch.Rows)
}

// elements is the elements of an array of one dimension; none of a NULL.
func (a *arrayParam) elements(b params, env *pgvalue.Env) (*table.Vec, error) {
	list := table.NewVec(a.codec.Type())
	if a.number > b.len() || b.declared(a.number, a.codec.OID()) != a.codec.OID() {
		return nil, errNotFast
	}
	val, binary := b.at(a.number)
	if val == nil {
		return list.Elems, nil
	}
	var err error
	if binary {
		err = a.codec.AppendBinary(list, val)
	} else {
		err = a.codec.AppendText(list, val, env)
	}
	if err != nil || len(list.Exact) > 0 {
		return nil, errNotFast
	}
	return list.Elems, nil
}
