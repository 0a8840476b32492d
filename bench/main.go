//go:build linux

// Command bench measures what rshub costs, each figure beside a floor that is
// measured in the same run: the least that any program could spend on the same
// bytes. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// benchSet is the set that changes are published to.
const benchSet = "bench"

// longest bounds a run; it takes about three quarters of an hour.
const longest = 75 * time.Minute

// A bench is one run of this program.
type bench struct {
	ctx     context.Context
	out     io.Writer
	begun   string
	program string // rshub
	ops     string // its ops address
	self    string // this program; default: what runs
	work    string // a directory for everything, removed at the end
	data    string // the file with real changes
	content content
	rounds  int
	cases   *regexp.Regexp // of loads that are measured, by their names; nil: all
	maxOpen uint64         // files that a process may open
	sizes
}

// skipped is why a part cannot run here. It is no failure.
type skipped string

func (s skipped) Error() string { return string(s) }

// sizes are the numbers that -quick makes smaller.
type sizes struct {
	publishing  time.Duration // of one figure
	connections int           // that messages fan out to
	crowd       int           // many more of them
	paced       time.Duration
	saturated   time.Duration
	idle        int // connections
	behind      int // changes that a follower catches up with
	list        int // changes in a Change List
	clustered   time.Duration
	flatLength  time.Duration // of one figure
	changes     int           // in a large memory
	sets        int

	called         time.Duration // of one figure of callbacks
	subscriptions  int           // idle
	behindCallback int           // changes

	scrapes int // of one figure

	callers int           // in a tokens file
	asked   time.Duration // how long requests come meanwhile

	resources int           // in an inventory
	followed  time.Duration // how long changes come that an inventory keeps up with
	looks     int           // at an inventory, of one figure

	files    int           // in a directory that is synced
	contents int           // that are mirrored
	listed   int           // URLs in a sitemap
	quiet    time.Duration // how long both ends have nothing to do

	wanting  int           // followers with a prefix each
	filtered time.Duration // how long there are changes that one of them wants

	wired time.Duration // how long there are publishes, of one figure
}

var (
	fullSizes  = sizes{700 * time.Millisecond, 1000, 5_000, 4 * time.Second, 2500 * time.Millisecond, 5000, 500_000, 25_000, 2 * time.Second, 300 * time.Millisecond, 5_000_000, 10_000, 1200 * time.Millisecond, 100_000, 100_000, 200, 100_000, 10 * time.Second, 1_000_000, 36 * time.Second, 200, 100_000, 20_000, 50_000, 20 * time.Second, 10_000, 2 * time.Second, 2 * time.Second}
	quickSizes = sizes{60 * time.Millisecond, 200, 500, time.Second, 300 * time.Millisecond, 500, 50_000, 5_000, 400 * time.Millisecond, 60 * time.Millisecond, 200_000, 1_000, 300 * time.Millisecond, 10_000, 10_000, 20, 5_000, 3 * time.Second, 20_000, 2 * time.Second, 20, 2_000, 500, 1_000, time.Second, 500, 300 * time.Millisecond, 300 * time.Millisecond}
)

// A part answers one question.
type part struct {
	name, title string
	run         func(*bench, *table) error
}

var parts = []part{
	{"publish", "Durable publishes, in process: hub.Publish; floor: append the same blocks to a file, fsync once for all that wait", (*bench).publish},
	{"publish-http", "Durable publishes over HTTP, on kept connections; floor: net/http that reads the body, then the floor above; decoded: the floor decodes the body and encodes the blocks too", (*bench).publishHTTP},
	{"fanout", "WebSocket fan-out of messages of 1 KB; floor: the same frame, one write(2) for each connection and message", (*bench).fanout},
	{"events", "Event streams, the same messages; floor: as above", (*bench).events},
	{"filters", "Publishes that one of many WebSockets wants, each with a prefix of its own, one after the other; floor: the same hub with one of these WebSockets", (*bench).filters},
	{"wire", "Compressed messages with real changes: bytes, and CPU of publishes over HTTP and of their delivery; plain: the same with plain messages", (*bench).wire},
	{"idle", "Memory of idle WebSocket connections; floor: a bare descriptor for each", (*bench).idleConnections},
	{"catchup", "Catching up over WebSocket; floor: the same bytes from memory to one connection", (*bench).catchup},
	{"callbacks", "Deliveries to callbacks, one to each for each publish, the next publish when all are answered; CPU without that of the same publishes with nobody subscribed; floor: net/http in a process of its own, a goroutine for each callback, the same bodies and headers", (*bench).callbacks},
	{"callback-latency", "Latency from publish to callback; floor: as above, not stored", (*bench).callbackTimes},
	{"callback-idle", "Memory of idle subscriptions; floor: the bytes of callback, secret and token", (*bench).idleSubscriptions},
	{"callback-catchup", "Catching up over a callback, with the verification; floor: as above, the same 1,000 changes again and again", (*bench).callbackCatchUp},
	{"rights", "What tokens, limits and the audit log cost: a hub whose callers have limits, as all together have, and with an audit log; floor: a hub with none of these, in turn with it, many times in a round", (*bench).rights},
	{"dialects", "What dialects cost that are off by default, when nobody asks: a hub with RDM, robots.txt, a place for dumps, and XMPP of another set; floor: a hub without, in turn with it, many times in a round", (*bench).dialects},
	{"tokens", "A tokens file with 100,000 callers, read in process; floor: its lines, split into fields. And requests to a hub that reads it anew again and again meanwhile; floor: that does not", (*bench).tokens},
	{"scrape", "Reading the metrics of a hub with many sets and idle subscriptions; floor: net/http with the Go and process metrics alone", (*bench).scrape},
	{"redis", "Durable publishes into Redis, in process: hub.Publish on redislog; floor: go-redis, one XADD of the same block for each publish, from as many goroutines; appendfsync everysec", (*bench).redis},
	{"redis-memory", "Memory of Redis; floor: the same blocks in one bare stream", (*bench).redisMemory},
	{"redis-catchup", "Catching up from Redis, in process: hub.Follow; floor: go-redis, XRANGE of the same blocks", (*bench).redisCatchup},
	{"cluster", "Latency from publish to receipt, 1,000 changes a second over HTTP, followed by one WebSocket; Redis, NATS and two hubs; floor: go-redis, one XADD, then publish over NATS to one subscriber", (*bench).cluster},
	{"redis-flat", "Does it stay the same in Redis? In process, two hubs, Redis and NATS: a memory with 10,000 changes in one set, and a larger one", (*bench).redisFlat},
	{"disk-flat", "And on disk, with one hub", (*bench).diskFlat},
	{"inventory-disk", "Inventories beside a memory on the disk, in process: live.Live. Making one of the log; floor: decode the same changes, make the elements of their digests, append them to a file. Its size; floor: blocks of the log with the same changes, by loc. The state at the head, cold; floor: read the same changes", (*bench).inventoryDisk},
	{"inventory-redis", "The same beside a memory in Redis", (*bench).inventoryRedis},
	{"inventory-follow-disk", "Keeping up with changes at random places, in process, a memory on the disk; floor: the same hub without inventories", (*bench).inventoryFollowDisk},
	{"inventory-follow-redis", "The same with a memory in Redis", (*bench).inventoryFollowRedis},
	{"inventory-publish-disk", "Durable publishes with inventories, in process, a memory on the disk; floor: without", (*bench).inventoryPublishDisk},
	{"inventory-publish-redis", "The same with a memory in Redis", (*bench).inventoryPublishRedis},
	{"inventory-baseline", "A baseline over one WebSocket; floor: the same bytes from memory to one connection", (*bench).inventoryBaseline},
	{"inventory-audit", "Audits by position, client.Audit; floor: net/http answering the same requests with the same bytes from memory", (*bench).inventoryAudit},
	{"sync", "rspublish sync of a directory of which no file has changed; floor: find -printf of what sync has to know of each file", (*bench).sync},
	{"relay", "rspublish relay of a sitemap; floor: encoding/xml reading the same sitemap, in the bench's process", (*bench).relay},
	{"mirror", "rsmirror -once of small files, into a new directory, each file durable; floor: net/http with as many requests at a time, each file created and renamed, nothing durable, in the bench's process", (*bench).mirror},
	{"dump", "A Resource Dump of small contents, each checked by its hash, in a hub that does nothing else; floor: net/http with as many requests at a time, each content into one ZIP file, nothing durable, in the bench's process", (*bench).dumps},
	{"quiet", "Both ends in sync, with nothing to do; floor: net/http, idle", (*bench).quietEnds},
	{"documents", "Documents, time until the last byte; floor: net/http serving the same bytes from memory", (*bench).documents},
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "floor" {
		fmt.Fprintln(os.Stderr, runFloor(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	// SIGPIPE too must end the run in an orderly way, because the directory must be removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	b := &bench{ctx: ctx, out: out, begun: time.Now().UTC().Format(time.RFC3339)}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	pick := flags.String("run", "", "regular expression; only parts whose name it matches")
	cases := flags.String("case", "", "regular expression; of publish and publish-http, only the cases that it matches, such as '16 publishers, batches of 1$'")
	quick := flags.Bool("quick", false, "a smoke run: does it work? Its figures mean little")
	flags.IntVar(&b.rounds, "rounds", 0, "rounds, of whose figures the medians are shown; 0: 3, with -quick 1")
	jsonFile := flags.String("json", "", "file to append the figures to, as lines of JSON")
	dir := flags.String("dir", ".", "where to make the directory for data, on the disk to measure")
	flags.StringVar(&b.program, "rshub", "", "the program to measure; default: it is built")
	flags.StringVar(&b.ops, "ops", "127.0.0.1:0", "rshub's ops address, to profile it meanwhile")
	flags.StringVar(&b.data, "data", "../shared/data/peps-changes.jsonl.gz", "real changes, gzipped NDJSON; synthetic ones when there is no such file")
	_ = flags.Parse(args) // it exits by itself
	which, err := regexp.Compile(*pick)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if b.cases, err = regexp.Compile(*cases); err != nil {
		return fmt.Errorf("-case: %w", err)
	}
	b.sizes = fullSizes
	if *quick {
		b.sizes = quickSizes
	}
	if b.rounds <= 0 {
		b.rounds = 3
		if *quick {
			b.rounds = 1
		}
	}
	figures := io.Discard
	if *jsonFile != "" {
		f, err := os.OpenFile(*jsonFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		figures = f
	}
	if b.work, err = os.MkdirTemp(*dir, ".rshub-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	if err := b.prepare(); err != nil {
		return err
	}
	for _, p := range parts {
		if which.MatchString(p.name) {
			err = errors.Join(err, b.runPart(p, figures))
		}
	}
	return err
}

// prepare makes what every part needs.
func (b *bench) prepare() (err error) {
	if b.work, err = filepath.Abs(b.work); err != nil {
		return err
	}
	if b.maxOpen, err = raiseFiles(); err != nil {
		return err
	}
	var name string
	if b.content, name, err = loadContent(b.data); err != nil {
		return err
	}
	if b.program == "" {
		b.program = filepath.Join(b.work, "rshub")
		if err := build(b.ctx, b.program, "rshub"); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.out, "%s; medians of %d rounds, in each floor and rshub in turn; others: what other processes took of the machine meanwhile\n", name, b.rounds)
	return nil
}

// runPart runs a part and prints what it measured, also when it failed halfway.
func (b *bench) runPart(p part, figures io.Writer) error {
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	begin := time.Now()
	t := &table{run: b.begun, part: p.name, aimless: b.sizes == quickSizes}
	err := p.run(b, t)
	if s, ok := errors.AsType[skipped](err); ok {
		fmt.Fprintf(b.out, "\n%s: %s\n  SKIPPED: %s\n", p.name, p.title, s)
		return nil
	}
	fmt.Fprintf(b.out, "\n%s: %s (%.0f s)\n", p.name, p.title, time.Since(begin).Seconds())
	err = cmp.Or(err, t.print(b.out), t.writeJSON(figures))
	if err != nil {
		err = fmt.Errorf("%s: %w", p.name, err)
		fmt.Fprintln(b.out, "  FAILED:", err)
	}
	return err
}

// dir makes a directory for a part's data, within the directory that is removed at the end.
func (b *bench) dir() (string, error) { return os.MkdirTemp(b.work, "data-") }

// alternate measures floor and ours once in each round, and calls add with both results.
// The two take turns in being first.
func alternate[T any](b *bench, floor, ours func() (T, error), add func(floor, ours T)) error {
	for i := range b.rounds {
		var f, o T
		var err error
		if i%2 == 0 {
			f, err = floor()
		}
		if err == nil {
			o, err = ours()
		}
		if i%2 == 1 && err == nil {
			f, err = floor()
		}
		if err = cmp.Or(err, b.ctx.Err()); err != nil {
			return err
		}
		add(f, o)
	}
	return nil
}
