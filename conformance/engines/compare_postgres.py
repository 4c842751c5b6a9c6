#!/usr/bin/env python3
"""Compare every table of an Iceberg REST catalog, as engines read it, with the table of the same name in a Postgres.

  compare_postgres.py REST_URI POSTGRES_DSN [engine...]       engines: pyiceberg, duckdb (default: both), spark, polars

Prints "ENGINE TABLE equal: N rows" for each, or the first differences, and ends with status 1 if there are any. Columns that only the
engine has (companions, NAME__text) are left out.
"""
import collections
import decimal
import struct
import sys
import uuid

import read_iceberg

def plain(value, float32=False):
    """One form for a value, whichever reader it comes from."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return struct.pack(">f" if float32 else ">d", value).hex() if value == value else "nan"
    if isinstance(value, (int, decimal.Decimal)):
        return format(decimal.Decimal(value).normalize(), "f")
    if isinstance(value, (list, tuple)):
        return tuple(plain(v, float32) for v in value)
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, uuid.UUID):
        return str(value)
    return value.isoformat()


def postgres_rows(dsn, table):
    import psycopg2
    with psycopg2.connect(dsn) as con, con.cursor() as cur:
        cur.execute("set timezone = 'UTC'")
        cur.execute('select * from "%s"' % table.replace('"', '""'))
        names = [d.name for d in cur.description]
        float32 = [d.type_code == 700 for d in cur.description]
        return names, [tuple(plain(v, f) for v, f in zip(row, float32)) for row in cur.fetchall()]


def arrow_rows(table, names):
    import pyarrow as pa
    columns = []
    for name in names:
        column = table.column(name)
        float32 = pa.types.is_float32(column.type)
        columns.append([plain(v, float32) for v in column.to_pylist()])
    return list(zip(*columns)) if columns and table.num_rows else []


def readers(uri, engines):
    if "pyiceberg" in engines:
        from pyiceberg.catalog.rest import RestCatalog
        catalog = RestCatalog("lake", uri=uri)
        yield "pyiceberg", lambda name: catalog.load_table(("public", name)).scan().to_arrow()
    if "duckdb" in engines:
        con = read_iceberg.duckdb_connection()
        con.execute("ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '%s', AUTHORIZATION_TYPE 'none')" % uri)
        yield "duckdb", lambda name: con.execute('select * from lake.public."%s"' % name.replace('"', '""')).to_arrow_table()


    if "polars" in engines:
        import polars
        from pyiceberg.catalog.rest import RestCatalog
        found_by = RestCatalog("lake", uri=uri)
        # Its own reader: by default polars lets pyiceberg read what it finds hard. It gives a uuid as bytes, which is not equal here.
        yield "polars", lambda name: polars.scan_iceberg(found_by.load_table(("public", name)), reader_override="native").collect().to_arrow()
    if "spark" in engines:
        import spark_session
        spark = spark_session.start(uri)
        yield "spark", lambda name: spark.table("lake.public.`%s`" % name.replace("`", "``")).toArrow()
        spark.stop()


def tables(uri):
    from pyiceberg.catalog.rest import RestCatalog
    return sorted(t[-1] for t in RestCatalog("lake", uri=uri).list_tables("public"))


def differences(want, got):
    missing, extra = collections.Counter(want), collections.Counter(got)
    missing.subtract(collections.Counter(got))
    extra.subtract(collections.Counter(want))
    return [("-", r) for r in (+missing).elements()] + [("+", r) for r in (+extra).elements()]


def main():
    uri, dsn, engines = sys.argv[1], sys.argv[2], sys.argv[3:] or ["pyiceberg", "duckdb"]
    bad = False
    expected = {name: postgres_rows(dsn, name) for name in tables(uri)}
    for engine, read in readers(uri, engines):
        for name, (columns, want) in expected.items():
            diff = differences(want, arrow_rows(read(name), columns))
            if not diff:
                print(engine, name, "equal: %d rows" % len(want))
                continue
            bad = True
            print(engine, name, "differs in %d rows" % len(diff))
            for sign, row in diff[:4]:
                print("   ", sign, row)
    if not expected:
        sys.exit("the catalog has no tables")
    sys.exit(1 if bad else 0)


main()
