//go:build linux

// Command bench measures the cost of rshub. Each figure is compared with a floor that is
// measured in the same run: the minimum that any program could spend on the same
// bytes. See README.md.
package main

import (
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

// benchSet is the set to which changes are published.
const benchSet = "bench"

// setPath is the path at which changes of the set are published and followed.
const setPath = "/sets/" + benchSet + "/changes"

// A bench is one run of this program.
type bench struct {
	ctx     context.Context
	out     io.Writer
	work    string // a directory for everything, removed at the end
	data    string // within it, of the part
	program string // the rshub to measure; empty to build it
	ops     string // its ops address
	rounds  int
	aimless bool // the run is too small for aims
	changes content
	ends    []func() error // see later
	sizes
}

// skipError is the reason why a part cannot run on this machine. It is not a failure.
type skipError string

func (s skipError) Error() string { return string(s) }

// sizes are the numbers that -quick reduces.
type sizes struct {
	length        time.Duration // of one figure of publishing; others take a multiple of it
	connections   int           // that messages fan out to
	idle          int           // connections to which nothing is sent
	behind        int           // changes that a follower catches up with
	list          int           // changes in a Change List
	subscriptions int           // to which nothing is delivered
	large         int           // changes in a large memory
	sets          int           // in a memory with many
	resources     int           // in an inventory
	following     time.Duration // how long changes come that an inventory keeps up with
	files         int           // in a directory that is synced
	mirrored      int           // files that are mirrored
}

var fullSizes = sizes{
	length: time.Second, connections: 1000, idle: 5000, behind: 500_000, list: 25_000, subscriptions: 100_000,
	large: 5_000_000, sets: 10_000, resources: 1_000_000, following: 30 * time.Second, files: 100_000, mirrored: 20_000,
}

var quickSizes = sizes{
	length: 100 * time.Millisecond, connections: 200, idle: 500, behind: 50_000, list: 5000, subscriptions: 10_000,
	large: 200_000, sets: 1000, resources: 20_000, following: 2 * time.Second, files: 2000, mirrored: 500,
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
	b := &bench{ctx: ctx, out: out, sizes: fullSizes, changes: newContent()}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	pick := flags.String("run", "", "run only parts with names that match the `regexp`")
	flags.BoolVar(&b.aimless, "quick", false, "run a quick smoke test; the figures are not meaningful")
	flags.IntVar(&b.rounds, "rounds", 3, "number of rounds; the medians are printed; -quick runs one")
	dir := flags.String("dir", ".", "`directory` for data, on the disk to measure")
	flags.StringVar(&b.program, "rshub", "", "`program` to measure; default: build it")
	flags.StringVar(&b.ops, "ops", "127.0.0.1:0", "operations `address` of rshub, to profile it during the run")
	_ = flags.Parse(args) // exits on error
	which, err := regexp.Compile(*pick)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if b.aimless {
		b.sizes, b.rounds = quickSizes, 1
	}
	if b.work, err = os.MkdirTemp(*dir, ".rshub-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	if b.work, err = filepath.Abs(b.work); err != nil {
		return err
	}
	fmt.Fprintf(out, "medians of %d rounds, each with floor and rshub; others: share of the CPU used by other processes\n", b.rounds)
	for _, p := range parts {
		if which.MatchString(p.name) {
			err = errors.Join(err, b.runPart(p))
		}
	}
	return err
}
