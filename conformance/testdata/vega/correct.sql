insert into weather values ('2012-01-01', 1.5, 12.8, 5.0, 4.7, 'rain'), ('2016-01-01', 0.0, 5.5, -1.1, 2.0, 'sun')
  on conflict (date) do update set precipitation = excluded.precipitation, weather = excluded.weather;
insert into weather select date, precipitation + 0.1, temp_max + 1, temp_min - 1, wind, 'snow!' from weather where weather = 'snow'
  on conflict (date) do update set temp_max = excluded.temp_max, temp_min = excluded.temp_min, weather = excluded.weather;
insert into airports (iata, name, country) values ('00M', 'Thigpen Field', 'USA'), ('ZZZ', 'Nowhere', 'USA') on conflict (iata) do update set name = excluded.name;
update airports set state = null where state = 'NA';
update stocks set price = price * 1.1 where symbol = 'IBM' and date >= '2008-01-01';
insert into stocks values ('IBM', '2000-01-01', 1) on conflict do nothing;
-- fails
insert into stocks values ('IBM', '2000-01-01', 1);
delete from weather where date >= '2013-03-01' and date < '2013-04-01';
delete from birdstrikes where date >= '1995-06-01' and date < '1995-07-01';
update birdstrikes set damage = null, speed = coalesce(speed, 0) + 1 where damage = 'None' and size = 'Large';
update zipcodes set city = upper(city) where state = 'NY';
delete from zipcodes where state = 'PR';
update health set population = population + 1, income = income / 3 where region like '%asia%';
merge into disasters d using (select 'Flood' as entity, y as year from generate_series(1990, 2030) y) s on d.entity = s.entity and d.year = s.year
  when matched and d.deaths > 10000 then update set deaths = deaths - 1 when matched then do nothing when not matched then insert values (s.entity, s.year, 0);
