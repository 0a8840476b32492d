// Command train makes the dictionary of package compressed anew, from real changes:
//
//	go run ./feed/compressed/train ../shared/data/peps-changes.jsonl.gz
//
// It takes as many messages, without the digits of their hashes, as make others smaller.
// The same changes give the same dictionary. A new dictionary has a new name, and clients
// with another one get messages that need none.
package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const (
	file = "feed/compressed/dictionary.txt"

	maxSize = 8 << 10 // bytes
	least   = 0.002   // what a message in the dictionary must save of what is left
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./feed/compressed/train CHANGES.jsonl.gz")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	changes, err := read(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	learn, try := changes[:len(changes)/2], changes[len(changes)/2:]
	ones, tens := messages(learn, 1, "set", "2025-06-15T12:00:00Z"), messages(learn, 10, "set", "2025-06-15T12:00:00Z")
	d := choose(every(ones, 97), append(every(ones, 41), every(tens, 23)...))
	for _, n := range []int{1, 10, 100} {
		all := messages(try, n, "another", "2026-11-23T09:00:00Z")
		plain := 0
		for _, m := range all {
			plain += len(m)
		}
		fmt.Printf("batches of %d that were not learnt: %.3f of their size without a dictionary, %.3f with it\n", n, float64(size(nil, all))/float64(plain), float64(size(d, all))/float64(plain))
	}
	return os.WriteFile(file, d, 0o644)
}

// read returns the changes in a gzipped file, one a line as JSON.
func read(path string) (changes []resourcesync.Change, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		c, err := resourcesync.ParseChange(lines.Bytes())
		if err != nil {
			return nil, err
		}
		changes = append(changes, *c)
	}
	return changes, lines.Err()
}

// messages returns the messages of publishes of n changes each to a set.
func messages(changes []resourcesync.Change, n int, set, begin string) (all [][]byte) {
	at, err := time.Parse(time.RFC3339, begin)
	if err != nil {
		panic(err) // it is constant
	}
	after := feed.Cursor{Position: 1, Micros: at.UnixMicro()}
	for batch := range slices.Chunk(changes, n) {
		gap := int64(len(all)) * 7919 % 3_000_000_000 // some seconds to an hour
		last := feed.Cursor{Position: after.Position + uint64(len(batch)), Micros: after.Micros + gap + int64(len(batch))}
		all = append(all, feed.NewBatch(set, after, last, batch).JSON())
		after = last
	}
	return all
}

// every returns each n-th message.
func every(all [][]byte, n int) (some [][]byte) {
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// digits are the digits of a hash, which no other message has.
var digits = regexp.MustCompile(`[0-9a-f]{32,}`)

// choose returns the dictionary: of the candidates the one that makes the samples smallest,
// behind it the one that then does, and so on. The first stands last, because what is near
// costs least.
func choose(candidates, samples [][]byte) (d []byte) {
	best := size(nil, samples)
	for len(d) < maxSize {
		before, next := best, []byte(nil)
		for _, c := range candidates {
			longer := append(digits.ReplaceAll(c, nil), d...)
			if n := size(longer, samples); n < best {
				best, next = n, longer
			}
		}
		if float64(before-best) < least*float64(before) {
			break
		}
		d = next
	}
	return d
}

// size returns how many bytes messages take with a dictionary, or without one.
func size(d []byte, messages [][]byte) (n int) {
	o := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64 << 10)}
	if d != nil {
		o = append(o, zstd.WithEncoderDictRaw(0, d))
	}
	e, err := zstd.NewWriter(nil, o...)
	if err != nil {
		panic(err) // the options are constant
	}
	defer e.Close()
	var frame []byte
	for _, m := range messages {
		frame = e.EncodeAll(m, frame[:0])
		n += len(frame)
	}
	return n
}
