package main

import "github.com/rshub/rshub/internal/dumpcmd"

// The flags say what they do where they are defined. docs/http.md, docs/sources.md,
// docs/relay.md and docs/dumps.md say more.
const help = `rspublish publishes changes to a set of an rshub.

  rspublish [flags] -set NAME FILE...
  rspublish [flags] -set NAME -updated URI -deleted URI ...
  rspublish sync  [flags] -set NAME SOURCE
  rspublish watch [flags] -set NAME -base URL DIRECTORY
  rspublish relay [flags] -set NAME URL
  rspublish dump  [flags] -base URL -out-url URL DIRECTORY OUT
  rspublish dump  [flags] -out-url URL REPOSITORY OUT

This text is about files of changes. sync and watch find out what has changed in a directory
or a list, relay follows a source elsewhere that can only be polled, and dump packs a
directory, or the records of a repository, into ZIP files. rspublish sync -h explains sync, and so on.

Files are published in the order given, and "-" is standard input. Each is
  - ResourceSync XML: a change notification or a change list,
  - JSON: {"changes": [{"loc": "https://...", "change": "updated"}, ...]},
  - or NDJSON: one such change a line, any number of lines,
plain or gzipped. Changes given as flags are published in the order of the flags.

All files are checked before the first change is sent: if one is bad, nothing is published.
Input from a pipe is checked in batches of 1,000 changes, each before it is sent.

Interrupted? Run the same command again. For a day, the hub recognises a file by its content,
and does not publish the same changes twice. Standard input and changes given as flags are
new each time: rspublish prints the -key to go on with, or choose a key yourself.

Examples
  rspublish -set articles changes.xml
  rspublish -set articles -created https://example.org/a -deleted https://example.org/b
  zcat day-*.jsonl.gz | rspublish -hub https://hub.example.org -set articles -
  rspublish -set articles -key 2026-02-03 - < changes.jsonl
`

const syncHelp = `rspublish sync brings a hub up to date with a source. It lists the source, compares the
list with what the hub knows of the set, and publishes the difference. rspublish watch does
so with a directory, and then publishes changes as they happen.

  rspublish sync  [flags] -set NAME -base URL DIRECTORY
  rspublish sync  [flags] -set NAME LIST
  rspublish sync  [flags] -set NAME https://example.org/sitemap.xml
  rspublish watch [flags] -set NAME -base URL DIRECTORY

DIRECTORY  Each regular file below it is a resource
LIST       a file, or - for standard input, plain or gzipped, with one resource on each line
           as JSON: {"loc": URI, "hash": "sha-256:HEX", "lastmod": DATETIME, "length": BYTES,
           "type": MEDIA TYPE}. Only loc is required
URL        of a Resource List, a sitemap, an index of them, or a site that has one.
           RSPUBLISH_SOURCE_USER has NAME:PASSWORD for its host, if that wants a login

A resource that the source does not name is deleted at the hub. The token needs the rights
publish:NAME and follow:NAME. Interrupted? Run the same command again.

Examples
  rspublish sync -set site -dry-run -base https://example.org/ /var/www/html
  psql -qAtf resources.sql | rspublish sync -set records -
`

const relayHelp = `rspublish relay follows a source that can only be polled, and publishes its changes to a
hub. It looks at the source again and again, until it is told to stop.

  rspublish relay [flags] -set NAME URL

URL is a Source Description, a Capability List, a Change List, a Resource List, a sitemap, an
index of these, a text with one URL on each line, the base URL of a repository that speaks
OAI-PMH, or a site that has one of these. RSPUBLISH_SOURCE_USER has NAME:PASSWORD for its
host, if that wants a login.

A resource that the source does not have is deleted at the hub, so nobody else may publish to
the set. The token needs the rights publish:NAME and follow:NAME. -json prints a line for each
look, in which "how" is unchanged, changes or compared.

Examples
  rspublish relay -set site https://example.org/sitemap.xml
  rspublish relay -set papers -oai-set math -loc https://arxiv.org/abs/{local} https://oaipmh.arxiv.org/oai
`

const dumpHelp = `rspublish dump packs a directory, or the records of a repository, into ZIP files, and keeps
the documents of ResourceSync that name them: a Resource Dump with everything, and a Change
Dump with what has changed since. It asks no hub.

  rspublish dump [flags] -base URL -out-url URL DIRECTORY OUT
  rspublish dump [flags] -out-url URL REPOSITORY OUT

DIRECTORY  Each regular file below it is a resource, as for rspublish sync
REPOSITORY the base URL of a repository that speaks OAI-PMH. Each record is a resource, at the
           URL of GetRecord, with that answer as its content. RSPUBLISH_SOURCE_USER has
           NAME:PASSWORD for its host, if that wants a login
OUT        a directory of rspublish's own, new or empty at first. Serve it with any web
           server, without .rsdump, which holds what rspublish remembers

-json prints the summary as JSON. Interrupted? Run the same command again.

Examples
  rspublish dump -base https://example.org/ -out-url https://example.org/dumps/ /srv/files /srv/dumps
  rspublish dump -out-url https://example.org/dumps/ https://example.org/oai /srv/dumps

` + dumpcmd.Help

const exitCodes = `
Exit codes
  0    all is published; watch and relay: they were told to stop
  1    the hub refused it, for example the token, the set or an entry
  2    the command line is wrong
  3    an input or the source cannot be read, or has a mistake
  4    the hub could not be reached, or was not ready, for as long as -retry says
  5    more would be deleted than -max-delete allows; none of that was published
  6    a part of the source could not be read; all else was published
  130  interrupted (SIGINT or SIGTERM); run the same command again to go on
`
