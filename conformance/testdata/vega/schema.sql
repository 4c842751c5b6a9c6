create table airports (iata text primary key, name text, city text, state text, country text not null, latitude float8, longitude float8);
create table weather (date date primary key, precipitation numeric(5,1), temp_max numeric(4,1), temp_min numeric(4,1), wind numeric(4,1), weather text check (weather <> ''));
create table flights (origin text not null, destination text not null, count int not null, primary key (origin, destination));
create table flights_archive (origin text not null, destination text not null, count int not null, moved text, primary key (origin, destination));
create table birdstrikes (airport text, aircraft text, damage text, date date, operator text, state text, phase text, size text, species text, time_of_day text, cost_other int, cost_repair int, cost_total int, speed int);
create table stocks (symbol text, date date, price numeric(8,2) not null, primary key (symbol, date));
create table zipcodes (zip_code char(5) primary key, latitude float4, longitude float4, city varchar(60), state char(2), county text);
create table health (country text primary key, income numeric, health numeric(5,2), population bigint, region text);
create table disasters (entity text, year int, deaths bigint, primary key (entity, year));
