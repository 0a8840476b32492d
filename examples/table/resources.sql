-- The resources of an article table as lines of JSON, for rshub audit, python3 -m rshub audit, and table.py.
--
--   sqlite3 articles.db < resources.sql > resources.ndjson
--
-- lastmod is in UTC. If the table has checksums, add 'hash', 'sha-256:' || checksum, by which copies are then compared.
SELECT json_object(
  'loc', 'https://example.org/articles/' || id,
  'lastmod', strftime('%Y-%m-%dT%H:%M:%SZ', changed),
  'length', length(CAST(body AS BLOB)),
  'type', 'text/plain')
FROM article WHERE published ORDER BY id;
