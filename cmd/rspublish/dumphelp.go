package main

import "github.com/rshub/rshub/internal/dumping"

const dumpHelp = `rspublish dump packs a directory into ZIP files, and keeps the documents of ResourceSync that
name them: a Resource Dump with everything, and a Change Dump with what has changed since.
Destinations then need few requests for many resources. It asks no hub.

  rspublish dump [flags] -base URL -out-url URL DIRECTORY OUT

DIRECTORY  Each regular file below it is a resource: the file a/b is at URL/a/b, as for
           rspublish sync
OUT        a directory of rspublish's own, outside of DIRECTORY, and new or empty at first.
           Serve it with any web server, or copy it to storage behind one, without .rsdump,
           which holds what rspublish remembers

Examples
  rspublish dump -base https://example.org/ -out-url https://example.org/dumps/ /srv/files /srv/dumps
  rspublish dump -keep 3 -full-every 7d -base https://example.org/ -out-url https://dumps.example.org/ /srv/files /srv/dumps

` + dumping.Help + `
Directories
  -base URL         where the files are on the web; required
  -exclude PATTERN  leave out what matches, such as *.tmp or drafts/*; may be repeated.
                    If an earlier run has packed such a file, it is deleted in the Change Dump
  -temporary        also pack temporary files of editors
  -settle DURATION  do not read a file that has changed within this time, because it may
                    still be written (default 1s)

Output
  -q                print nothing but errors
  -json             print the summary as JSON: {"at", "full", "delayed", "listed", "created",
                    "updated", "deleted", "gaps", "packages", "bytes"}
  -h                print this

Interrupted? Run the same command again. What OUT serves is valid at any moment.

Exit codes
  0    OUT has what DIRECTORY has
  2    the command line is wrong
  3    DIRECTORY cannot be read, or OUT cannot be written, is in use, or has files of others;
       nothing was published
  5    more would be deleted than -max-delete allows; nothing was published
  6    some files could not be read. They are named on standard error, and in a list that
       the dumps of this run link to. Everything else was published
  130  interrupted (SIGINT or SIGTERM); run the same command again to go on
`
