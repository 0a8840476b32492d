package main

const help = `rsmirror keeps a copy of the resources of a source, and proves that it is right.

  rsmirror [flags] URL DIR
  rsmirror audit [flags] DIR

URL is anything that leads to the source: the topic of a set of an rshub, a Capability
List, a Source Description, a Resource List, a Resource Dump, a sitemap, a page that links
to one of these, or a site. If it leads to several sets, rsmirror lists them and ends. DIR
is a directory for rsmirror alone. It must be new or empty. rsmirror keeps its records in
DIR/.rsmirror. rsmirror follows an rshub by push. From any other source it reads the
Resource List or the Resource Dump, and then the Change Lists, again and again.

rsmirror requests every URL that the source names, also in your own network. Mirror only
sources that you trust, or use -public.

Examples
  rsmirror https://hub.example.org/sets/articles/changes /srv/articles
  rsmirror -once https://example.org/ /srv/example
  rsmirror audit -repair /srv/articles
  rsmirror -to 'exec:./index.sh' https://hub.example.org/sets/articles/changes state

What
  -once             catch up, try again what failed, and end, for example for cron
  -prefix URI       only resources whose URL begins with URI
  -strip URI        remove URI from the beginning of URLs to get the paths of files;
                    without -strip, a path begins with the host
  -to ndjson        get no contents; write every change to standard output, as a line of
                    JSON
  -to exec:COMMAND  get no contents; run a shell command for every batch of changes. The
                    command reads them from standard input, as lines of JSON. If it does
                    not exit with 0, it is run again, after pauses that grow
  -adopt            use DIR although it has files. A file in the place of a resource is
                    replaced, unless its hash is right

How
  -every DURATION   how often to look at a source without a hub (default 5m)
  -retry DURATION   how long -once waits for a source that does not answer (default 10m)
  -parallel N       how many contents to get at the same time (default 16)
  -per-host N       how many of them from one host (default 4)
  -max-size SIZE    the largest content, or ZIP file of a Resource Dump (default 10GiB)
  -max-delete N     how many resources may be deleted within a day: a number, a share such
                    as 20% of what DIR has, or all (default: 10% or ten, whichever is
                    more). If there are more, rsmirror deletes none of them, and ends
  -public           get contents only from public addresses, and also documents that are
                    not at the host of URL
  -token-file FILE  a file with the token (default: RSMIRROR_TOKEN has the token). It is
                    sent only to the host of URL, and only for documents
  -content-token https://HOST=FILE
                    a file with the token for contents at HOST; once for each host. Other
                    contents are requested without credentials
  -q                print nothing but errors
  -json             print the summary of -once as JSON: {"files", "bytes", "fetched",
                    "kept", "removed", "missing"}
  -version          print the version
  -h                print this text

For one DIR, always use the same URL, -prefix, -strip and -to.

What fails
  If a content cannot be got, or does not have the length and the hash that the source
  names, rsmirror tries again after 10 seconds, and then after pauses that double up to an
  hour, also in later runs. Until then the old file stays, and rsmirror goes on with others.

rsmirror audit
  proves that DIR has what the source has, and prints every difference as a line of JSON.
  It compares rsmirror's records with the hub at one cursor, or with the source's lists.
  Then it compares every file with the records, by length and hash. A line has the members
    problem   missing, stale, damaged, extra or unknown
    in        bookkeeping (the records) or file
    loc, path, reason, repaired
  -quick            check only the size and the modification time of files
  -repair           catch up first; then get what is missing, stale or damaged, and remove
                    what the source does not have
  -remove-extra     with -repair: also remove files that rsmirror did not make
  -parallel, -per-host, -max-size, -max-delete, -public, -retry, -token-file,
  -content-token, -q
                    as above
  While another rsmirror works in DIR, audit gets a copy of the records from it. It checks
  twice what seems wrong, and does not report what changed meanwhile. Before you use
  -repair, stop the other rsmirror.

Exit codes
  0    DIR has everything; without -once: rsmirror was stopped (SIGINT or SIGTERM)
  1    -once: some resources are missing, because they could not be got;
       audit: there are differences that are not repaired
  2    the command line is wrong
  3    DIR cannot be used: it has files of others, is in use, is full or cannot be
       written; or standard output cannot be written
  4    the source cannot be reached, refuses the request, offers nothing to mirror, or
       offers several sets
  5    more resources would be deleted than -max-delete allows
  130  -once or audit was interrupted; run it again to continue
`
