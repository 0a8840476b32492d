-- What exists in an article table, as a line of JSON for each resource: the input of rshub audit, of
-- python3 -m rshub audit, and of table.py.
--
--   sqlite3 articles.db < resources.sql > resources.ndjson
--
-- lastmod is in UTC. If the table knows a checksum, say "hash", 'sha-256:' || checksum: then copies are compared by that.
SELECT json_object(
  'loc', 'https://example.org/articles/' || id,
  'lastmod', strftime('%Y-%m-%dT%H:%M:%SZ', changed),
  'length', length(CAST(body AS BLOB)),
  'type', 'text/plain')
FROM article WHERE published ORDER BY id;
