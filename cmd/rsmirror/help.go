package main

import "github.com/rshub/rshub/internal/dumpcmd"

const help = `rsmirror keeps a copy of the resources of a source, and proves that it is right.

  rsmirror [flags] URL DIR
  rsmirror audit [flags] DIR
  rsmirror dump [flags] -out-url URL DIR OUT

URL is anything that leads to the source: the topic of a set of an rshub, a Capability
List, a Source Description, a Resource List, a Resource Dump, a sitemap, a page that links
to one of these, or a site. If it leads to several sets, rsmirror lists them and ends. DIR
is a directory of rsmirror's own. It must be new or empty; its directory .rsmirror holds
what rsmirror knows. rsmirror follows an rshub by push. Of any other source it reads the
Resource List or the Resource Dump, and then the Change Lists or the Change Dump, again and
again.

rsmirror requests every URL that the source names, also in your own network. Mirror only
sources that you trust, or say -public.

Examples
  rsmirror https://hub.example.org/sets/articles/changes /srv/articles
  rsmirror -once https://example.org/ /srv/example
  rsmirror audit -repair /srv/articles
  rsmirror -to 'exec:./index.sh' https://hub.example.org/sets/articles/changes state
  rsmirror dump -out-url https://example.org/dumps/ /srv/articles /srv/dumps

What
  -once             catch up, try again what failed, and end; for cron
  -prefix URI       only resources whose URL begins with URI
  -collection URI   only resources that the source says are in this collection, by a link
                    rel="collection" to URI. A resource that leaves it is deleted
  -strip URI        if the URL of a resource begins with URI, its path is the rest of the
                    URL; without -strip, a path begins with the host
  -to ndjson        fetch no contents; write every change to standard output, one on each
                    line, as JSON
  -to exec:COMMAND  fetch no contents; run a shell command for every batch of changes. It
                    gets them on its standard input, as JSON, one on each line. Until it
                    exits with 0, it is run again, with growing pauses
  -adopt            use DIR even if it has files. A file at the path of a resource is
                    replaced, unless its hash is right

How
  -every DURATION   how often to look at a source without a hub (default 5m)
  -retry DURATION   how long -once waits for a source that does not answer (default 10m)
  -parallel N       how many contents to fetch at a time (default 16)
  -per-host N       the same for one host (default 4)
  -max-size SIZE    the largest content, or ZIP file of a dump (default 10GiB)
  -max-delete N     how many resources may be deleted within a day: a number, a share such
                    as 20% of what DIR has, or all (default: 10% or ten, whichever is
                    more). If there are more, rsmirror deletes none of them, and ends.
                    Without this flag it deletes nothing because of an empty list
  -duplicates-first fetch a content from the duplicates that the source names, in the order
                    that the source prefers, and from its own URL only if none is right
  -public           fetch contents, and documents that are not at the host of URL, only from
                    public addresses
  -token-file FILE  holds the bearer token; without it RSMIRROR_TOKEN does. It is sent only
                    to the host of URL, and only for documents
  -content-token https://HOST=FILE
                    holds the bearer token for contents at HOST; for each host once. Other
                    contents are fetched without credentials
  -q                print nothing but errors
  -json             print the summary of -once as JSON: {"files", "bytes", "fetched",
                    "kept", "removed", "missing"}
  -version          print the version
  -h                print this

The settings URL, -prefix, -collection, -strip and -to of a DIR cannot be changed.

What fails
  A content that cannot be fetched, or that does not have the length and the hash that
  the source names, is tried again after 10 seconds, and then after pauses that double up to
  an hour, also in later runs. The old file stays. Meanwhile rsmirror goes on.

rsmirror audit
  proves that DIR has what the source has, and prints every difference as JSON, one on
  each line. It compares the bookkeeping with the hub at one cursor, or with the source's
  lists, and every file with the bookkeeping, by length and hash. A line has the members
    problem   missing, stale, damaged, extra or unknown
    in        bookkeeping or file
    loc, path, reason, repaired
  -quick            look only at size and modification time of files
  -repair           catch up first; then fetch missing, stale and damaged files again, and
                    remove what the source does not have
  -remove-extra     with -repair: also remove files that rsmirror did not make
  -name NAME        tell the hub, under this name, that the mirror was proved right; the hub
                    shows it to its operators (default rsmirror; '' tells the hub nothing,
                    and neither does -quick)
  -parallel, -per-host, -max-size, -max-delete, -duplicates-first, -public, -retry,
  -token-file, -content-token, -q
                    as above
  While another rsmirror works in DIR, audit asks it for a copy of its bookkeeping, and
  checks each problem twice: it does not report what changed meanwhile. Before -repair,
  stop the other rsmirror.

rsmirror dump
  packs what DIR has into ZIP files in OUT, and keeps the documents of ResourceSync that name
  them there: a Resource Dump with everything, and a Change Dump with what has changed since.
  OUT is a directory of rsmirror's own, and new or empty at first. Serve it with any web
  server, without .rsdump, which holds what rsmirror remembers. Another rsmirror may work in
  DIR meanwhile. -retry, -max-delete and -q are as above, -json prints the summary as JSON.

` + dumpcmd.Help + `
Exit codes
  0    DIR has everything; without -once: rsmirror was told to end (SIGINT or SIGTERM)
  1    -once: some resources are missing, because they could not be fetched;
       audit: there are differences that are not repaired;
       dump: some resources could not be read, or are packed in an older version
  2    the command line is wrong
  3    DIR cannot be used: it has files of others, is in use, is full or cannot be
       written; or standard output cannot be written
  4    the source cannot be reached, refuses, offers nothing to mirror, or offers several
       sets
  5    more resources would be deleted than -max-delete allows
  130  -once or audit was interrupted; run it again to go on
`
