#!/usr/bin/env bash
# Shows the gateway at work on an empty directory: DDL, single inserts, an upsert, a transaction over two tables, kill -9 and a new
# start, a flush, and what the REST catalog then says. Needs psql and curl.
set -euo pipefail
cd "$(dirname "$0")/.."
listen=${LISTEN:-127.0.0.1:15433}
http=${HTTP:-127.0.0.1:18181}
dir=$(mktemp -d)
start() {
	bin/sluice serve --listen "$listen" --http "$http" --data "$dir" >>"$dir.log" 2>&1 &
	gateway=$!
}
start
trap 'kill $gateway 2>/dev/null; wait $gateway 2>/dev/null || true; rm -rf "$dir" "$dir.log"' EXIT

ready() { curl -fsS -o /dev/null --retry 120 --retry-delay 1 --retry-all-errors "http://$http/healthz" 2>/dev/null; }
ready || { cat "$dir.log"; exit 1; }

sql() { psql -X -v ON_ERROR_STOP=1 --echo-queries "postgresql://lake@$listen/lake"; }
sql <<'SQL'
create table customers (id bigint primary key, name text not null);
create table orders (id bigint primary key, customer bigint references customers, amount numeric(10,2));
insert into customers values (1, 'Ada'), (2, 'Grace');
insert into customers values (2, 'Grace Hopper') on conflict (id) do update set name = excluded.name;
begin;
insert into orders values (10, 1, 99.90), (11, 2, 12.00);
update customers set name = 'Ada Lovelace' where id = 1;
commit;
SQL

echo "kill -9 $gateway, and again"
kill -9 "$gateway"
wait "$gateway" 2>/dev/null || true
start
ready || { cat "$dir.log"; exit 1; }

sql <<'SQL'
select c.name, count(*), sum(o.amount) from customers c join orders o on o.customer = c.id group by c.name order by c.name;
select sluice.flush();
SQL
echo "REST catalog:"
curl -fsS "http://$http/v1/namespaces/public/tables"
echo
