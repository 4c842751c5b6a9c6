-- What testsetup/postgresql_setup.sql makes, without its superusers, whose tests want TLS and passwords.
create extension hstore;
create extension ltree;
create domain uint64 as numeric(20,0);
select 'create user postgres' where not exists (select from pg_roles where rolname = 'postgres') \gexec
create user " tricky, ' } "" \\ test user " password 'secret';
