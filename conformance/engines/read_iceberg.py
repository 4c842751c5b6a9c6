#!/usr/bin/env python3
"""Print the rows of Iceberg tables as an engine reads them.

  read_iceberg.py pyiceberg|duckdb|filters METADATA...     METADATA is the path or file:// URI of a metadata.json

For each table a line "# METADATA", then its rows in any order, one JSON array a row: dates as days and times as microseconds
since 1970, floats as the hexadecimal digits of their bits (one NaN for all), decimals, UUIDs and bytes (0x…) as text.
A table that the engine refuses gives "! its error" instead of rows.

"filters" compares, in DuckDB, what a condition finds in the Iceberg table, where statistics prune files, with what it finds
in a copy of its rows. Its lines are "! condition: found, want" and at the end the number of conditions tried.
"""
import glob
import importlib.util
import json
import os
import struct
import sys
import uuid


def bits(code, value):
    if value != value:
        value = float("nan")
    return struct.pack(code, value).hex()


def text_uuid(value):
    return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else value).lower()


def canonical(t):
    """A pair: the Arrow type to cast a column of type t to, and a function that makes one value canonical."""
    import pyarrow as pa
    is_ = pa.types
    if isinstance(t, pa.BaseExtensionType):
        return t.storage_type, text_uuid
    if is_.is_boolean(t) or is_.is_integer(t):
        return t, lambda v: v
    if is_.is_string(t) or is_.is_large_string(t):
        return t, lambda v: v
    if is_.is_float32(t):
        return t, lambda v: bits(">f", v)
    if is_.is_float64(t):
        return t, lambda v: bits(">d", v)
    if is_.is_decimal(t):
        return t, lambda v: format(v, "f")
    if is_.is_date32(t):
        return pa.int32(), lambda v: v
    if is_.is_time64(t) or is_.is_timestamp(t) and t.unit == "us":
        return pa.int64(), lambda v: v
    if is_.is_fixed_size_binary(t) and t.byte_width == 16:
        return t, text_uuid
    if is_.is_binary(t) or is_.is_large_binary(t):
        return t, lambda v: "0x" + v.hex()
    if is_.is_list(t) or is_.is_large_list(t):
        inner, f = canonical(t.value_type)
        return pa.list_(inner), lambda v: [None if x is None else f(x) for x in v]
    raise TypeError("no canonical form for " + str(t))


def lines(table):
    columns = []
    for field, column in zip(table.schema, table.columns):
        to, f = canonical(field.type)
        if column.type != to and not hasattr(field.type, "extension_name"):
            column = column.cast(to)
        values = column.to_pylist() if not hasattr(field.type, "extension_name") else column.combine_chunks().to_pylist()
        columns.append([None if v is None else f(v) for v in values])
    for i in range(table.num_rows):
        yield json.dumps([c[i] for c in columns], ensure_ascii=False)


def read_pyiceberg(metadata):
    from pyiceberg.table import StaticTable
    return StaticTable.from_metadata(metadata).scan().to_arrow()


def duckdb_connection():
    import duckdb
    con = duckdb.connect(":memory:", config={"allow_unsigned_extensions": "true", "threads": "1", "memory_limit": "1GB"})
    con.execute("set autoinstall_known_extensions=false")
    con.execute("set timezone='UTC'")
    for name in ("avro", "httpfs", "iceberg"):
        at = os.path.dirname(importlib.util.find_spec("duckdb_extension_" + name).origin)
        con.execute("LOAD '%s'" % glob.glob(at + "/extensions/*/%s.duckdb_extension" % name)[0])
    return con


def conditions(con, name, sql_type):
    """Conditions on one column: comparisons with its least, its greatest and some other values, and for NULL."""
    yield '"%s" is null' % name
    yield '"%s" is not null' % name
    values = [r[0] for r in con.execute(
        'select v::varchar from (select distinct "{0}" v, row_number() over (order by "{0}") n, count(*) over () k from copy '
        'where "{0}" is not null) where n in (1, k // 2, k)'.format(name)).fetchall()]
    for v in dict.fromkeys(values):
        literal = "'%s'::%s" % (v.replace("'", "''"), sql_type)
        for op in ("=", "<", "<=", ">", ">="):
            yield '"%s" %s %s' % (name, op, literal)


def truncated_decimals(metadata):
    """Columns on whose filters DuckDB 1.5.5 fails (INTERNAL Error): it reads the bounds of truncate(decimal) as unsigned."""
    with open(metadata.removeprefix("file://")) as f:
        m = json.load(f)
    sources = {p["source-id"] for s in m["partition-specs"] for p in s["fields"] if p["transform"].startswith("truncate")}
    schema = next(s for s in m["schemas"] if s["schema-id"] == m["current-schema-id"])
    return {f["name"] for f in schema["fields"] if f["id"] in sources and str(f["type"]).startswith("decimal")}


def filters(con, metadata):
    source = "iceberg_scan('%s')" % metadata.removeprefix("file://")
    skip = truncated_decimals(metadata)
    con.execute("create or replace temp table copy as select * from " + source)
    tried = 0
    for name, sql_type, *_ in con.execute("describe copy").fetchall():
        if sql_type.endswith("[]") or name in skip:
            continue
        for where in conditions(con, name, sql_type):
            tried += 1
            found, want = (con.execute("select count(*) from %s where %s" % (t, where)).fetchone()[0] for t in (source, "copy"))
            if found != want:
                yield "! %s: %d, want %d" % (where, found, want)
    yield str(tried)


def main():
    engine, tables = sys.argv[1], sys.argv[2:]
    if engine != "pyiceberg":
        con = duckdb_connection()

        def read(metadata):
            return con.execute("select * from iceberg_scan('%s')" % metadata.removeprefix("file://")).to_arrow_table()
    else:
        read = read_pyiceberg
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an engine prints is not a row
    for metadata in tables:
        print("#", metadata, file=out)
        try:
            for line in filters(con, metadata) if engine == "filters" else lines(read(metadata)):
                print(line, file=out)
        except Exception as e:
            if os.environ.get("TRACE"):
                raise
            print("!", type(e).__name__, " ".join(str(e).split())[:500], file=out)


if __name__ == "__main__":
    main()
