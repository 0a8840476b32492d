package main

const syncHelp = `rspublish sync lists a source, compares the list with what the hub knows about the set,
and publishes what was created, updated and deleted since. rspublish watch does the same
with a directory when it starts, and then publishes changes as they happen.

  rspublish sync  [flags] -set NAME -base URL DIRECTORY
  rspublish sync  [flags] -set NAME LIST
  rspublish sync  [flags] -set NAME https://example.org/sitemap.xml
  rspublish watch [flags] -set NAME -base URL DIRECTORY

DIRECTORY  Each regular file below it is a resource: the file a/b is at URL/a/b. Symbolic
           links are left out. index.html has no special meaning.
LIST       a file, or - for standard input, plain or gzipped. It has one resource on
           each line, in any order, as JSON: {"loc": URI, "hash": "sha-256:HEX",
           "lastmod": DATETIME, "length": BYTES, "type": MEDIA TYPE}. Only loc is
           required. A resource that is not in the list is deleted at the hub.
URL        the URL of a Resource List, a sitemap, or an index of them; or of a site, whose
           list sync finds in the same way as rspublish relay. If its host requires a
           login, set RSPUBLISH_SOURCE_USER to NAME:PASSWORD

Examples
  rspublish sync -set site -base https://example.org/ /var/www/html
  rspublish watch -set site -base https://example.org/ /var/www/html
  psql -qAtf resources.sql | rspublish sync -set records -
  rspublish sync -set site https://example.org/sitemap.xml
  rspublish sync -set site -dry-run -max-delete all export.ndjson

Where to
  -hub URL          the hub (RSPUBLISH_HUB; default http://127.0.0.1:8080)
  -set NAME         the set (RSPUBLISH_SET). sync makes it if it does not exist
  -token-file FILE  a file with the token (default: RSPUBLISH_TOKEN has the token). The
                    token needs the rights publish:NAME and follow:NAME
  -retry DURATION   how long to try again while the hub cannot be reached or is busy
                    (default 10m). After that, watch does not give up: it syncs again

Safety
  -dry-run          only print the changes, one on each line as JSON (sync)
  -max-delete BOUND how many resources may be deleted: a number, a share of what the hub
                    knows such as 20%, or all. With more, nothing is published, and the
                    exit code is 5. Default: ten resources or 10%, whichever is more,
                    but none if the source is empty. watch counts the deletions since
                    its last sync
  -prefix URI       the list is only about resources whose loc begins with URI; other
                    resources of the set stay as they are (sync)

What differs
  The strongest evidence that both sides have decides: a hash by the same algorithm, else
  lastmod and length. So a file that was only touched is not published.
  -unknown          also publish resources that list and hub have, but that cannot be
                    compared. Without -unknown they are only counted (sync)
  -no-lastmod       ignore the lastmod of the list, if it is not true: some sitemaps
                    have the time of the request (sync)

Directories
  -base URL         where the files are on the web; required
  -exclude PATTERN  leave out what matches, such as *.tmp or drafts/*; may be repeated.
                    A pattern without a slash matches names at any depth, one with a slash
                    whole paths below DIRECTORY. If the hub knew a file that is now left
                    out, it is deleted there
  -temporary        also list what editors leave: *~ .*.sw[a-p] .#* #*# .~lock.*#
                    .nfs????????*. Other hidden files are always listed
  -settle DURATION  do not read a file that has changed within this time, because it may
                    still be written (default 1s). sync waits a little, and then leaves
                    the file for the next run. watch waits as long as necessary
  -state DIR        where to remember the hashes of files, so that only changed files are
                    read again, and what a list at a URL was like (default: in your cache
                    directory). DIR must be outside of DIRECTORY
  -every DURATION   how often watch also syncs everything (default 1h). That finds
                    changes that the system did not report, for example on a network
                    file system

Output
  -q                print nothing but errors
  -json             print the summary as JSON: {"set", "listed", "created", "updated",
                    "deleted", "unknown", "gaps", "kept", "complete", "cursor"}
  -h                print this text

At its end, sync tells the hub that the hub now knows all resources. Then the hub serves a
Resource List, and destinations may delete what the hub does not name. sync does not say so
if a part of the source could not be listed, or with -prefix.

Interrupted? Run the same command again. It compares again, and publishes the rest.

Exit codes
  0    the hub knows what the source has; watch: it was told to stop
  1    the hub refused the request, for example the token or the set
  2    the command line is wrong
  3    the source cannot be read, or a list has a mistake; nothing was published
  4    the hub could not be reached, or was not ready, for as long as -retry says
  5    more would be deleted than -max-delete allows; nothing was published
  6    a part of the source could not be listed, such as a file without permission to
       read it, or a name that is not UTF-8. All else was published. What could not be
       listed was not deleted; if it was a whole directory, nothing was deleted
  130  interrupted (SIGINT or SIGTERM); run the same command again to continue
`
