package main

import "github.com/rshub/rshub/internal/dumpcmd"

// The help of each command is followed by its flags, which are described where they are defined,
// and by exitCodes. docs/http.md, docs/sources.md, docs/relay.md and docs/dumps.md have details.
const help = `Usage: rspublish [flags] -set NAME FILE...
       rspublish [flags] -set NAME -updated URI -deleted URI ...
       rspublish sync  [flags] -set NAME SOURCE
       rspublish watch [flags] -set NAME -base URL DIRECTORY
       rspublish relay [flags] -set NAME URL
       rspublish dump  [flags] -base URL -out-url URL DIRECTORY OUT
       rspublish dump  [flags] -out-url URL REPOSITORY OUT

Publish changes to a set of an rshub.

Without a command, rspublish publishes changes from files or flags. sync and watch detect
changes in a directory or a list, relay polls a source on the web, and dump packs a
directory, or the records of a repository, into ZIP files. For details of a command, run
for example rspublish sync -h.

Files are published in the order given; "-" is standard input. A file has one of
  - ResourceSync XML: a change notification or a change list,
  - JSON: {"changes": [{"loc": "https://...", "change": "updated"}, ...]},
  - NDJSON: any number of lines, each with one such change,
and may be gzipped. Changes in flags are published in the order of the flags.

All files are validated before the first change is sent: if one is invalid, nothing is
published. Input from a pipe is validated and sent in batches of 1,000 changes.

To resume after an interruption, run the same command again. For a day, the hub recognizes
files by their contents, and does not publish changes again. Standard input and changes in
flags are always new, unless they have a key: rspublish prints the -key for resuming, or you
can choose one.

Examples
  rspublish -set articles changes.xml
  rspublish -set articles -created https://example.org/a -deleted https://example.org/b
  zcat day-*.jsonl.gz | rspublish -hub https://hub.example.org -set articles -
  rspublish -set articles -key 2026-02-03 - < changes.jsonl
`

const syncHelp = `Usage: rspublish sync  [flags] -set NAME -base URL DIRECTORY
       rspublish sync  [flags] -set NAME LIST
       rspublish sync  [flags] -set NAME https://example.org/sitemap.xml
       rspublish watch [flags] -set NAME -base URL DIRECTORY

rspublish sync lists a source, compares the list with the hub's inventory of the set, and
publishes the differences. rspublish watch does this for a directory, and then publishes
changes as they happen.

DIRECTORY  each regular file in it or its subdirectories is a resource
LIST       a file, or - for standard input, plain or gzipped, with one JSON object per line:
           {"loc": URI, "hash": "sha-256:HEX", "lastmod": DATETIME, "length": BYTES,
           "type": MEDIA TYPE}. Only loc is required
URL        a Resource List, a sitemap, an index of these, or a site that has one. If its
           host requires a login, set RSPUBLISH_SOURCE_USER to NAME:PASSWORD

Resources that the source does not list are deleted at the hub. The token needs the rights
publish:NAME and follow:NAME. To resume after an interruption, run the same command again.

Examples
  rspublish sync -set site -dry-run -base https://example.org/ /var/www/html
  psql -qAtf resources.sql | rspublish sync -set records -
`

const relayHelp = `Usage: rspublish relay [flags] -set NAME URL

rspublish relay polls a source on the web, and publishes its changes to a hub until it is
stopped.

URL is a Source Description, a Capability List, a Change List, a Resource List, a sitemap, an
index of these, a text file with one URL per line, the base URL of an OAI-PMH repository, or
a site that has one of these. If its host requires a login, set RSPUBLISH_SOURCE_USER to
NAME:PASSWORD.

Resources that the source does not have are deleted at the hub, so no other program may
publish to the set. The token needs the rights publish:NAME and follow:NAME. -json prints a
line for each poll, in which "how" is unchanged, changes or compared.

Examples
  rspublish relay -set site https://example.org/sitemap.xml
  rspublish relay -set papers -oai-set math -loc https://arxiv.org/abs/{local} https://oaipmh.arxiv.org/oai
`

const dumpHelp = `Usage: rspublish dump [flags] -base URL -out-url URL DIRECTORY OUT
       rspublish dump [flags] -out-url URL REPOSITORY OUT

rspublish dump packs a directory, or the records of a repository, into ZIP files, and
maintains the ResourceSync documents that list them: a Resource Dump with all resources, and
a Change Dump with later changes. It needs no hub.

DIRECTORY  each regular file in it or its subdirectories is a resource, as for rspublish sync
REPOSITORY the base URL of an OAI-PMH repository. Each record is a resource: its URL is that
           of the GetRecord request, and its content the response. If the host requires a
           login, set RSPUBLISH_SOURCE_USER to NAME:PASSWORD
OUT        a directory for use by rspublish only, new or empty at first. Serve it with any
           web server, except .rsdump, which has the state of the dumps

-json prints the summary as JSON. To resume after an interruption, run the same command again.

Examples
  rspublish dump -base https://example.org/ -out-url https://example.org/dumps/ /srv/files /srv/dumps
  rspublish dump -out-url https://example.org/dumps/ https://example.org/oai /srv/dumps

` + dumpcmd.Help

const exitCodes = `
Exit codes
  0    everything was published; watch and relay: stopped by SIGINT or SIGTERM
  1    the hub refused a request, for example because of the token, the set or an entry
  2    the command line is invalid
  3    an input or the source cannot be read, or is invalid
  4    the hub was unreachable or not ready for as long as -retry allows
  5    -max-delete does not allow the deletions, so none of those changes was published
  6    a part of the source could not be read; everything else was published
  130  interrupted (SIGINT or SIGTERM); run the same command again to resume
`
