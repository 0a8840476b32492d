package main

const help = `rspublish publishes changes to a set of an rshub.

  rspublish [flags] -set NAME FILE...
  rspublish [flags] -set NAME -updated URI -deleted URI ...
  rspublish sync  [flags] -set NAME SOURCE
  rspublish watch [flags] -set NAME -base URL DIRECTORY
  rspublish relay [flags] -set NAME URL

If your source does not record its changes, use sync or watch. They compare a directory
or a list with what the hub knows, and publish the differences; rspublish sync -h explains
them. For a source elsewhere that cannot push, use relay; rspublish relay -h explains it.
This text is about files of changes.

Files are published in the order given, and "-" is standard input. Each is
  - ResourceSync XML: a change notification or a change list,
  - JSON: {"changes": [{"loc": "https://...", "change": "updated"}, ...]},
  - or NDJSON: one such change a line, any number of lines,
plain or gzipped. rspublish recognises the format by the content, not by the name.
Changes given as flags are published in the order of the flags.

Examples
  rspublish -set articles changes.xml
  rspublish -set articles -created https://example.org/a -deleted https://example.org/b
  zcat day-*.jsonl.gz | rspublish -hub https://hub.example.org -set articles -
  rspublish -hub https://hub.example.org -set articles -token-file token *.jsonl.gz

Where to
  -hub URL          the hub (RSPUBLISH_HUB; default http://127.0.0.1:8080)
  -set NAME         the set (RSPUBLISH_SET)
  -token-file FILE  a file with the token (default: RSPUBLISH_TOKEN has the token)

What
  -created URI, -updated URI, -deleted URI
                    one change; may be repeated
  -tag TAGS         tags for all these changes, by comma; may be repeated
  -link REL=URI     a link for all these changes, such as
                    describedby=https://example.org/a.json; may be repeated
  -check            only read and check everything; send nothing
  -allow-empty      accept an input without any change. Otherwise that is an error,
                    because an export that failed leaves an empty file

How
  -retry DURATION   how long to try again while the hub cannot be reached or is
                    busy, such as 90s or 2h (default 10m; 0: do not try again)
  -continue         for a file that has changed since its publishing began: skip as
                    many changes as the hub has accepted, and publish the rest. For a
                    file that was published and has only grown: publish the new end
  -again            publish a file again although it has not changed
  -restart          publish a file from its beginning although its publishing began
                    already
  -key KEY          a name for this run, if there is one input. Within a day, the hub
                    stores the same input with the same key only once, however often
                    and from whichever machine you send it
  -q                print nothing but errors
  -json             print the summary as JSON: {"set", "published", "already", "cursor"}
  -version          print the version
  -h                print this text

Bad input
  All files are read and checked before the first change is sent. So if a file is
  bad, nothing is published. Input from a pipe is checked in batches of 1,000
  changes, each before it is sent; the batches before a bad one are published.

Interrupted?
  Run the same command again. It continues where it stopped, also after Ctrl-C, a
  crash or an outage. A state file, FILE.rspublish beside FILE (or in your cache
  directory, if that cannot be written), says how far the publishing came. It also has
  the batch that was being sent. The same command sends this batch again first; for a
  day, the hub recognises a batch that it has stored already. The state file has no
  token.
  The state file stays when the whole FILE is published. Then the same command
  publishes nothing, until FILE changes (then all of it is published) or you use
  -again. The state file is about one hub and set, those of the last run.
  If the set was deleted in between, or the hub lost changes, rspublish says so and
  ends with 1. It does not continue in the middle.
  For standard input, rspublish prints the key to continue with. A crash may prevent
  that, so you may choose a key yourself:
    rspublish -set articles -key 2026-02-03 - < changes.jsonl

Exit codes
  0    everything is published, now or before; standard output says so in one line:
       published 20681 changes to articles, cursor 20681-1795...
  1    the hub refused the request, for example the token, the set or an entry; or
       the hub no longer has what was published before
  2    the command line is wrong
  3    bad input: a file is unreadable, invalid, in use by another rspublish, or
       has changed since it was begun
  4    the hub could not be reached, or was not ready, for as long as -retry says;
       run the same command again to continue
  130  interrupted (SIGINT or SIGTERM); run the same command again to continue
`
