package main

const relayHelp = `rspublish relay follows a source that can only be polled, and publishes its changes to a
hub. It looks at the source again and again, until it is told to stop.

  rspublish relay [flags] -set NAME URL

URL is one of these; relay finds out which:
  - a Source Description or a Capability List (ResourceSync): relay reads the Change Lists
    that it names, and compares everything by the Resource List now and then,
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
  -set NAME         the set (RSPUBLISH_SET). It is made if there is none. Nobody else may
                    publish to it: a resource that the source does not have is deleted
  -token-file FILE  holds the bearer token; without it RSPUBLISH_TOKEN does. It needs
                    the rights publish:NAME and follow:NAME
  -retry DURATION   how long to try again at one look while the hub cannot be reached or
                    is busy (default 10m)

Where from
  RSPUBLISH_SOURCE_USER
                    NAME:PASSWORD for the host of URL, if that wants a login (HTTP Basic).
                    They may also stand in URL, where everybody who can list processes
                    sees them. relay does not print, keep or publish them

When
  -every DURATION   how often to look (default 15m), sooner or later by a fifth
  -once             look once and end, for cron
  -full DURATION    how often to compare everything (default 24h). Between these
                    comparisons, relay trusts a server that says that nothing changed,
                    reads only new changes in Change Lists, and asks a repository only
                    for changed records
  -state FILE       keeps the state between two looks (default: in your cache directory).
                    Without a state, everything is compared

Repositories (OAI-PMH)
  -oai              the URL is a base URL; each of the following flags says so, too
  -prefix NAME      the metadataPrefix (default oai_dc)
  -oai-set SPEC     only the records of a set of the repository
  -loc TEMPLATE     the URL of a record's resource: {identifier} stands for its identifier,
                    {local} for what follows oai:NAME: in it. Or dc:identifier: the first
                    URL that the metadata has as an identifier. Default: the URL of the
                    record itself (GetRecord)

Safety
  -max-delete BOUND how many resources may be deleted within a day: a number, a share of
                    what the hub knows such as 20%, or all. With more, nothing is
                    deleted. Default: ten resources or 10%, whichever is more, but none
                    because of a source that is empty. Deletions in a Change List do not
                    count
  A list that ends early, or cannot be read, deletes nothing. A record of a repository
  that vanished is deleted when it was missing in two comparisons, 20 hours apart.

Output
  -q                print nothing but errors
  -json             print a line of JSON for each look: {"set", "how", "created", "updated",
                    "deleted", "listed", "unknown", "gaps", "kept", "complete", "cursor"}.
                    how is unchanged, changes, or compared
  -h                print this

relay makes one request to a server at a time, waits when the server asks for it
(Retry-After), and obeys the Crawl-delay of robots.txt. It prints an error and goes on;
with -once an error ends it.

Exit codes
  0    relay was told to stop; -once: the hub is up to date with the source
  1    the hub refused it, for example the token or the set
  2    the command line is wrong
  3    the source cannot be read, or has a mistake
  4    the hub could not be reached, or was not ready, for as long as -retry says
  5    more would be deleted than -max-delete allows; none of that was published
  6    a part of the source could not be read, such as a record without an identifier.
       Everything else was published, and nothing was deleted because of it
  130  interrupted (SIGINT or SIGTERM) before the first look was over
`
