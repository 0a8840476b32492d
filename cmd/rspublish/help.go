package main

const help = `rspublish publishes changes to a set of an rshub.

  rspublish [flags] -set NAME FILE...
  rspublish [flags] -set NAME -updated URI -deleted URI ...

Files are published in the order given, and "-" is standard input. Each is
  - ResourceSync XML: a change notification or a change list,
  - JSON: {"changes": [{"loc": "https://...", "change": "updated"}, ...]},
  - or NDJSON: one such change a line, any number of lines,
plain or gzipped. What it is shows in its content; its name does not matter.
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

How
  -retry DURATION   how long to try again while the hub cannot be reached or is
                    busy, such as 90s or 2h (default 10m; 0: not at all)
  -continue         go on with a file that was begun, though it has changed since:
                    after as many changes as were accepted
  -restart          forget that a file was begun; publish it from its beginning
  -key KEY          the name of this run, for what has no state file: standard
                    input, pipes and changes given as flags. The same input with
                    the same key is published once, however often it is sent.
  -q                print nothing but errors
  -json             print the summary as JSON: {"set", "published", "already", "cursor"}
  -version          print the version
  -h                print this

Bad input
  All files are read and checked before the first change is sent, so of a bad
  file nothing is published. What comes through a pipe is checked in batches of
  1,000 changes, each before it is sent; those before the bad one are published.

Interrupted?
  Run the same command again. While a file is being published, FILE.rspublish
  beside it (or a file in your cache directory, where that cannot be written)
  says how far it came. So after Ctrl-C, a crash or an outage it goes on where it
  was, and the hub recognises a batch that it has already. It does so for a day.
  The state holds no token, and goes away when all files are published.
  For standard input the key to go on with is printed. To survive a crash too,
  choose your own: rspublish -set articles -key 2026-02-03 - < changes.jsonl

Exit codes
  0    everything is published; standard output says so in one line:
       published 20681 changes to articles, cursor 20681-1795...
  1    the hub refused it, for example the token, the set or an entry
  2    the command line is wrong
  3    bad input: a file is unreadable, invalid, in use by another rspublish, or
       has changed since it was begun
  4    the hub could not be reached, or was not ready, for as long as -retry says;
       run the same command again to go on
  130  interrupted (SIGINT or SIGTERM); run the same command again to go on
`
