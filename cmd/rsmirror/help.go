package main

import "github.com/rshub/rshub/internal/dumpcmd"

// help is the output of -h for all commands.
const help = `Usage: rsmirror [flags] URL DIR
       rsmirror -all [flags] HUB DIR
       rsmirror audit [flags] DIR
       rsmirror dump [flags] -out-url URL DIR OUT

rsmirror maintains a copy of a source's resources in a directory, verifies the copy, and
packs it into ZIP files.

URL leads to the source: it is the topic of a set of an rshub, a Capability List, a Source
Description, a Resource List, a Resource Dump, a sitemap, a page that links to one of
these, or a site. If it leads to several sets, rsmirror lists them and exits. DIR must be
new or empty, and for use by rsmirror only; its directory .rsmirror has the state of the
mirror. rsmirror follows an rshub by push. It polls any other source: it reads the Resource
List or the Resource Dump once, and the Change Lists or the Change Dump periodically.

rsmirror requests every URL in the source's documents, including URLs in your own network.
Mirror only sources that you trust, or use -public.

Examples
  rsmirror https://hub.example.org/sets/articles/changes /srv/articles
  rsmirror -once https://example.org/ /srv/example
  rsmirror -all https://hub.example.org /srv/hub
  rsmirror audit -repair /srv/articles
  rsmirror -to 'exec:./index.sh' https://hub.example.org/sets/articles/changes state
  rsmirror dump -out-url https://example.org/dumps/ /srv/articles /srv/dumps

Selection and output
  -all              mirror all sets of an rshub that you may follow, and sets that are created
                    later, each in a directory of DIR with the set's name. HUB is the hub's
                    URL. Changes of all sets arrive on one connection
  -once             catch up, retry failed downloads, and exit; for cron
  -prefix URI       mirror only resources whose URL starts with URI
  -collection URI   mirror only resources that have a link rel="collection" to URI; a
                    resource that loses the link is deleted
  -strip URI        remove URI from the start of URLs to get paths; other paths start with
                    the host
  -to ndjson        write changes to standard output as JSON, one per line, instead of
                    fetching contents
  -to exec:COMMAND  run a shell command for each batch of changes, instead of fetching
                    contents; its standard input has the changes as JSON, one per line.
                    The command is retried with increasing delays until it exits with 0
  -adopt            use DIR even if it has files; a file at the path of a resource is
                    replaced unless it has the right hash

Operation
  -every DURATION   poll a source without a hub at this interval (default 5m)
  -retry DURATION   with -once, retry an unresponsive source for this long (default 10m)
  -parallel N       maximum number of concurrent downloads (default 16)
  -per-host N       maximum number of concurrent downloads per host (default 4)
  -max-size SIZE    maximum size of a content, or of a ZIP file of a dump (default 10GiB)
  -max-delete N     maximum number of deletions within a day: a number, a share of the
                    resources in DIR such as 20%, or all (default: 10% or ten, whichever is
                    more). If there are more, rsmirror deletes none of them, and exits.
                    Without this flag, an empty list deletes nothing
  -duplicates-first fetch a content from its duplicates, in the order of the source's
                    preference, and from its own URL only if none of them is right
  -public           fetch contents, and documents on other hosts than URL, from public
                    addresses only
  -token-file FILE  file with the bearer token (default: RSMIRROR_TOKEN). The token is sent
                    only to the host of URL, and only for documents
  -content-token https://HOST=FILE
                    file with the bearer token for contents at HOST; may be repeated for
                    other hosts. Contents of other hosts are fetched without credentials
  -q                print only errors
  -json             print the summary of -once as JSON: {"files", "bytes", "fetched",
                    "kept", "removed", "missing"}, with -all also "sets" and "failed"
  -version          print version and build information
  -h                print this help

URL, -all, -prefix, -collection, -strip and -to cannot be changed for an existing DIR.

Failed downloads
  If a content cannot be fetched, or its length or hash differs from the source's metadata,
  rsmirror continues with other resources and keeps the old file. It retries the content
  after 10 seconds, and then with delays that double up to an hour, across runs.

rsmirror audit
  Verify that DIR has the resources of the source, and print each difference as a JSON
  object on a line of its own. The bookkeeping is compared with the hub at one cursor, or
  with the lists of the source; each file is compared with the bookkeeping, by length and
  hash. The members of a line are
    problem   missing, stale, damaged, extra or unknown
    in        bookkeeping, file or set
    loc, path, reason, repaired, set
  If DIR was created with -all, all sets are audited. A set that only the hub has is missing,
  and one that only DIR has is extra.
  -quick            check only size and modification time of files
  -repair           catch up first; then fetch missing, stale and damaged files, and remove
                    files that the source no longer has. A set that only DIR has stays
  -remove-extra     with -repair, also remove files that rsmirror did not create
  -name NAME        name under which a successful audit is reported to the hub, which shows
                    it to its operators (default rsmirror). An empty name reports nothing,
                    and neither does -quick
  -parallel, -per-host, -max-size, -max-delete, -duplicates-first, -public, -retry,
  -token-file, -content-token, -q
                    as above
  While another rsmirror uses DIR, audit works on a copy of its bookkeeping and checks each
  problem twice, so that concurrent changes are not reported. Stop the other rsmirror before
  -repair.

rsmirror dump
  Pack the resources in DIR into ZIP files in OUT, and maintain the ResourceSync documents
  that list them: a Resource Dump with all resources, and a Change Dump with later changes.
  OUT must be new or empty at first, and for use by rsmirror only. Serve it with any web
  server, except .rsdump, which has the state of the dumps. Another rsmirror may use DIR
  at the same time. -retry, -max-delete and -q are as above; -json prints the summary as
  JSON.

` + dumpcmd.Help + `
Exit codes
  0    DIR is complete; without -once: stopped by SIGINT or SIGTERM
  1    -once: some resources could not be fetched, and are missing;
       audit: there are differences that were not repaired;
       dump: some resources could not be read, or are packed in an older version
  2    the command line is invalid
  3    DIR has files of other programs, is in use, is full or cannot be written; or
       standard output cannot be written
  4    the source is unreachable, refused a request, has nothing to mirror, or has several
       sets
  5    -max-delete does not allow the deletions
  130  -once or audit was interrupted; run it again to resume
  With -all, rsmirror continues with other sets if one fails. -once and audit then exit with
  the highest code of a set.
`
