package main

const syncHelp = `rspublish sync brings a hub up to date with a source. It lists the source, compares the
list with what the hub knows of the set, and publishes what was created, updated and
deleted since. rspublish watch does the same with a directory at its start, and then
publishes changes as they happen.

  rspublish sync  [flags] -set NAME -base URL DIRECTORY
  rspublish sync  [flags] -set NAME LIST
  rspublish sync  [flags] -set NAME https://example.org/sitemap.xml
  rspublish watch [flags] -set NAME -base URL DIRECTORY

DIRECTORY  Each regular file below it is a resource: the file a/b is at URL/a/b. Symbolic
           links are left out. index.html has no special meaning.
LIST       a file, or - for standard input, plain or gzipped. It has one resource on
           each line, in any order, as JSON: {"loc": URI, "hash": "sha-256:HEX",
           "lastmod": DATETIME, "length": BYTES, "type": MEDIA TYPE}. Only loc is
           required. A resource that is not in the list does not exist.
URL        of a Resource List, a sitemap, or an index of them; or of a site, whose list is
           found as rspublish relay finds it. RSPUBLISH_SOURCE_USER has NAME:PASSWORD for
           its host, if that wants a login

Examples
  rspublish sync -set site -base https://example.org/ /var/www/html
  rspublish watch -set site -base https://example.org/ /var/www/html
  psql -qAtf resources.sql | rspublish sync -set records -
  rspublish sync -set site https://example.org/sitemap.xml
  rspublish sync -set site -dry-run -max-delete all export.ndjson

Where to
  -hub URL          the hub (RSPUBLISH_HUB; default http://127.0.0.1:8080)
  -set NAME         the set (RSPUBLISH_SET). It is made if there is none
  -token-file FILE  holds the bearer token; without it RSPUBLISH_TOKEN does. It needs
                    the rights publish:NAME and follow:NAME
  -retry DURATION   how long to try again while the hub cannot be reached or is busy
                    (default 10m). watch never gives up: it syncs again after that

Safety
  -dry-run          only print the changes, one on each line as JSON (sync)
  -max-delete BOUND how many resources may be deleted within a day, by all runs together:
                    a number, a share of what the hub knows such as 20%, or all. With
                    more, nothing is published, and the exit code is 5. Default: ten
                    resources or 10%, whichever is more, but none because of a source
                    that is empty
  -prefix URI       the list speaks only of resources whose loc begins with URI; the
                    others of the set stay as they are (sync)

What differs
  The strongest evidence that both sides have decides: a hash by the same algorithm, else
  lastmod and length. So a file that was only touched is not published.
  -unknown          also publish a resource that cannot be compared, because list and hub
                    know different things about it. Without this it is only counted (sync)
  -no-lastmod       ignore the lastmod in the list, because it is wrong: some sitemaps
                    have the time of the request there (sync)

Directories
  -base URL         where the files are on the web; required
  -exclude PATTERN  leave out what matches, such as *.tmp or drafts/*; may be repeated.
                    A pattern without a slash is for names at any depth, one with a slash
                    for whole paths below DIRECTORY. If the hub knew a file that is left
                    out, the file is deleted at the hub
  -temporary        also list temporary files of editors: *~ .*.sw[a-p] .#* #*# .~lock.*#
                    .nfs????????*. Other hidden files are always listed
  -settle DURATION  do not read a file that has changed within this time, because it may
                    still be written (default 1s). sync waits a little, and then leaves
                    the file for the next run; watch waits as long as it takes
  -state DIR        remembers the hashes of files, so that only what has changed is read
                    again, and the state of a list at a URL (default: in your cache
                    directory). It must be outside of DIRECTORY
  -every DURATION   how often watch also syncs (default 1h). That finds changes that the
                    system did not report, for example on a network file system

Output
  -q                print nothing but errors
  -json             print the summary as JSON: {"set", "listed", "created", "updated",
                    "deleted", "unknown", "gaps", "kept", "complete", "cursor"}
  -h                print this

When the hub has everything, sync tells it so. Destinations may then delete resources that
the hub does not name, and the hub serves a Resource List of its own. sync does not do so
if a part of the source could not be listed, or with -prefix.

Interrupted? Run the same command again. It compares anew, and publishes the rest.

Exit codes
  0    the hub is up to date with the source; watch: it was told to stop
  1    the hub refused it, for example the token or the set
  2    the command line is wrong
  3    the source cannot be read, or a list has a mistake; nothing was published
  4    the hub could not be reached, or was not ready, for as long as -retry says
  5    more would be deleted than -max-delete allows; nothing was published
  6    a part of the source could not be listed, such as a file that may not be read, or
       a name that is not UTF-8. Everything else was published. The part that could not
       be listed was not deleted; if it is a whole directory, nothing was deleted
  130  interrupted (SIGINT or SIGTERM); run the same command again to go on
`
