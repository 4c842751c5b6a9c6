package pgvalue

import "sluice/writer/table"

// The type OIDs known here. They are fixed in every Postgres.
const (
	OIDBool        = 16
	OIDBytea       = 17
	OIDName        = 19
	OIDInt8        = 20
	OIDInt2        = 21
	OIDInt4        = 23
	OIDText        = 25
	OIDJSON        = 114
	OIDFloat4      = 700
	OIDFloat8      = 701
	OIDBpchar      = 1042
	OIDVarchar     = 1043
	OIDDate        = 1082
	OIDTime        = 1083
	OIDTimestamp   = 1114
	OIDTimestampTZ = 1184
	OIDNumeric     = 1700
	OIDUUID        = 2950
	OIDJSONB       = 3802
)

// arrayElem maps the array types of the types above to their element types.
var arrayElem = map[uint32]uint32{
	1000: OIDBool, 1001: OIDBytea, 1003: OIDName, 1016: OIDInt8, 1005: OIDInt2, 1007: OIDInt4, 1009: OIDText, 199: OIDJSON,
	1021: OIDFloat4, 1022: OIDFloat8, 1014: OIDBpchar, 1015: OIDVarchar, 1182: OIDDate, 1183: OIDTime, 1115: OIDTimestamp,
	1185: OIDTimestampTZ, 1231: OIDNumeric, 2951: OIDUUID, 3807: OIDJSONB,
}

var plainLake = map[uint32]table.Kind{
	OIDBool: table.Bool, OIDBytea: table.Binary, OIDName: table.String, OIDInt8: table.Int64, OIDInt2: table.Int32,
	OIDInt4: table.Int32, OIDText: table.String, OIDJSON: table.String, OIDFloat4: table.Float32, OIDFloat8: table.Float64,
	OIDBpchar: table.String, OIDVarchar: table.String, OIDDate: table.Date, OIDTime: table.Time,
	OIDTimestamp: table.Timestamp, OIDTimestampTZ: table.TimestampTZ, OIDUUID: table.UUID, OIDJSONB: table.String,
}

// Lake is the lake type of a Postgres type. With exact the type has values that t cannot hold (see table.Column.Exact).
// Without ok the lake has no such type: t is String and holds the exact text that Postgres prints.
func Lake(oid uint32, typmod int32) (t table.Type, exact, ok bool) {
	if elem, is := arrayElem[oid]; is {
		t, _, ok = Lake(elem, typmod)
		if !ok {
			return t, false, false
		}
		return table.ListOf(t), true, true
	}
	if oid == OIDNumeric {
		return lakeNumeric(typmod)
	}
	kind, ok := plainLake[oid]
	if !ok {
		return table.Type{Kind: table.String}, false, false
	}
	exact = kind == table.Date || kind == table.Timestamp || kind == table.TimestampTZ
	return table.Type{Kind: kind}, exact, true
}

func lakeNumeric(typmod int32) (t table.Type, exact, ok bool) {
	if typmod < 4 {
		return table.DecimalType(38, 18), true, true
	}
	p, s := numericTypmod(typmod)
	if p > 38 || s < 0 || s > p {
		return table.Type{Kind: table.String}, false, false
	}
	return table.DecimalType(p, s), true, true
}

// numericTypmod takes precision and scale out of a numeric's typmod; the scale is an 11-bit signed number.
func numericTypmod(typmod int32) (p, s int) {
	m := typmod - 4
	return int(m>>16) & 0xffff, (int(m)&0x7ff ^ 1024) - 1024
}

// ArrayOf is the array type of an element type whose arrays are stored as lists; 0 for every other type.
func ArrayOf(elem uint32) uint32 {
	for array, e := range arrayElem {
		if e == elem {
			return array
		}
	}
	return 0
}
