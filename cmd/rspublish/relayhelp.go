package main

const relayHelp = `rspublish relay is for a source that cannot push. It looks at the source again and again,
and publishes to a hub what is new, until it is stopped.

  rspublish relay [flags] -set NAME URL

URL is one of these; relay finds out which:
  - a Source Description or a Capability List (ResourceSync): relay reads the Change Lists
    that it names, and from time to time compares the whole Resource List,
  - a Change List, or an index of Change Lists,
  - a Resource List, a sitemap, or an index of them; also a text with one URL on each line,
  - the base URL of a repository that speaks OAI-PMH,
  - a site, such as https://example.org/, that has one of these at its well-known URI, or
    has a sitemap that its page or its robots.txt names, or that is at /sitemap.xml.

Examples
  rspublish relay -set site https://example.org/sitemap.xml
  rspublish relay -set articles -every 5m https://example.org/.well-known/resourcesync
  rspublish relay -set papers -oai -oai-set math -loc https://arxiv.org/abs/{local} \
      https://oaipmh.arxiv.org/oai
  rspublish relay -set site -once -json https://example.org/sitemap.xml

Where to
  -hub URL          the hub (RSPUBLISH_HUB; default http://127.0.0.1:8080)
  -set NAME         the set (RSPUBLISH_SET). relay makes it if it does not exist. Let
                    nobody else publish to it: relay deletes what the source does not have
  -token-file FILE  a file with the token (default: RSPUBLISH_TOKEN has the token). The
                    token needs the rights publish:NAME and follow:NAME
  -retry DURATION   how long to try again at one look while the hub cannot be reached or
                    is busy (default 10m)

Where from
  RSPUBLISH_SOURCE_USER
                    NAME:PASSWORD for the host of URL, if it requires a login (HTTP Basic).
                    You may also write them in URL, but then everybody who can list
                    processes sees them. relay does not print, store or publish them

When
  -every DURATION   how often to look (default 15m); each time varies by up to a fifth
  -once             look once and end, for cron
  -full DURATION    how often to compare everything (default 24h). Between these
                    comparisons, relay trusts a server that says that nothing changed,
                    reads only what is new in Change Lists, and asks a repository only
                    for what changed
  -state FILE       where relay keeps what it has to know between two looks (default: in
                    your cache directory). If the file is gone, relay compares everything

Repositories (OAI-PMH)
  -oai              the URL is the base URL of a repository; each of the next flags implies it
  -prefix NAME      the metadataPrefix (default oai_dc)
  -oai-set SPEC     only the records of a set of the repository
  -loc TEMPLATE     the URL of a record's resource: {identifier} stands for its identifier,
                    {local} for what follows oai:NAME: in it. Or dc:identifier: the first
                    URL that the metadata has as an identifier. Default: the URL of the
                    record itself (GetRecord)

Safety
  -max-delete BOUND how many resources may be deleted at one look: a number, a share of
                    what the hub knows such as 20%, or all. With more, nothing is
                    published. Default: ten resources or 10%, whichever is more, but none
                    if the source is empty. Deletions that a Change List names do not
                    count
  If a list ends early or cannot be read, nothing is deleted. If a record disappears from a
  repository that does not report deletions, it is deleted at the hub when two comparisons
  that are 20 hours apart did not find it.

Output
  -q                print nothing but errors
  -json             print a line of JSON for each look: {"set", "how", "created", "updated",
                    "deleted", "listed", "unknown", "gaps", "kept", "complete", "cursor"}.
                    how is unchanged, changes, or compared
  -h                print this text

relay sends a server one request at a time, waits as long as the server says (Retry-After),
and obeys the Crawl-delay of robots.txt. After an error, relay prints it and continues. With
-once, an error ends it.

Exit codes
  0    relay was stopped; -once: the hub knows what the source has
  1    the hub refused the request, for example the token or the set
  2    the command line is wrong
  3    the source cannot be read, or has a mistake
  4    the hub could not be reached, or was not ready, for as long as -retry says
  5    more would be deleted than -max-delete allows; nothing was published
  6    a part of the source could not be read, such as a record without an identifier. All
       else was published, and nothing was deleted because of it
  130  interrupted (SIGINT or SIGTERM) before the first look was over
`
