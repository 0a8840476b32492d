package main

const help = `rspublish publishes changes to a set of an rshub.

  rspublish [flags] -set NAME FILE...
  rspublish [flags] -set NAME -updated URI -deleted URI ...
  rspublish sync  [flags] -set NAME SOURCE
  rspublish watch [flags] -set NAME -base URL DIRECTORY
  rspublish relay [flags] -set NAME URL
  rspublish dump  [flags] -base URL -out-url URL DIRECTORY OUT

A source that keeps no record of its changes uses sync or watch. They compare what
there is, a directory or a list, with what the hub knows, and publish the difference;
rspublish sync -h explains them. relay does so for a source elsewhere that can only be
polled; see rspublish relay -h. dump packs a directory into ZIP files for destinations; see
rspublish dump -h. This text is about files of changes.

Files are published in the order given, and "-" is standard input. Each is
  - ResourceSync XML: a change notification or a change list,
  - JSON: {"changes": [{"loc": "https://...", "change": "updated"}, ...]},
  - or NDJSON: one such change a line, any number of lines,
plain or gzipped. The content shows which it is; the name does not matter.
Changes given as flags are published in the order of the flags.

Examples
  rspublish -set articles changes.xml
  rspublish -set articles -created https://example.org/a -deleted https://example.org/b
  zcat day-*.jsonl.gz | rspublish -hub https://hub.example.org -set articles -
  rspublish -hub https://hub.example.org -set articles -token-file token *.jsonl.gz

Where to
  -hub URL          the hub (RSPUBLISH_HUB; default http://127.0.0.1:8080)
  -set NAME         the set (RSPUBLISH_SET)
  -token-file FILE  holds the bearer token; without it RSPUBLISH_TOKEN does

What
  -created URI, -updated URI, -deleted URI
                    one change; repeat them as you like
  -check            only read and check everything; send nothing
  -allow-empty      take an input without any change; else it is an error, because an
                    export that failed leaves an empty file

How
  -retry DURATION   how long to try again while the hub cannot be reached or is
                    busy, such as 90s or 2h (default 10m; 0: do not try again)
  -again            publish files again although they were published within a day
  -key KEY          the name of this run, for one input. The same input with the same
                    key is published only once within a day, even if you send it
                    again or from another machine
  -q                print nothing but errors
  -json             print the summary as JSON: {"set", "published", "already", "cursor"}
  -version          print the version
  -h                print this

Bad input
  All files are read and checked before the first change is sent. So if a file is
  bad, nothing is published. Input from a pipe is checked in batches of 1,000
  changes, each before it is sent; the batches before a bad one are published.

Interrupted?
  Run the same command again. For a day, the hub recognises a file by its content, and
  does not publish the same changes twice, even from another machine. So the command
  continues after Ctrl-C, a crash or an outage. A file that is already published is not
  published again, unless you say -again. If a file was extended or corrected, the
  batches of 1,000 changes before the first difference are not published again. After
  a day, or if the set was deleted in between, everything is published again.
  Standard input and changes given as flags are new each time: two runs may mean two
  changes. rspublish prints the key to go on with. A crash may prevent that, so you may
  choose a key yourself:
    rspublish -set articles -key 2026-02-03 - < changes.jsonl

Exit codes
  0    everything is published, now or before; standard output says so in one line:
       published 20681 changes to articles, cursor 20681-1795...
  1    the hub refused it, for example the token, the set or an entry; or the hub
       no longer has what this run published
  2    the command line is wrong
  3    bad input: a file is unreadable, invalid, or was changed meanwhile
  4    the hub could not be reached, or was not ready, for as long as -retry says;
       run the same command again to go on
  130  interrupted (SIGINT or SIGTERM); run the same command again to go on
`
