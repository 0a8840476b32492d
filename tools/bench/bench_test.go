//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// The test program runs as a floor if the bench starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "floor" {
		fmt.Fprintln(os.Stderr, runFloor(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// small returns a bench that takes little time.
func small(t *testing.T, out io.Writer) *bench {
	return &bench{
		ctx: t.Context(), out: out, work: t.TempDir(), ops: "127.0.0.1:0", rounds: 1, aimless: true, changes: newContent(),
		sizes: sizes{
			length: 20 * time.Millisecond, connections: 20, idle: 200, behind: 2000, list: 1000, subscriptions: 3000,
			large: 20_000, sets: 20, resources: 3000, following: 200 * time.Millisecond, files: 150, mirrored: 120,
		},
	}
}

// Every part runs and has figures. -run TestParts/flat runs one.
func TestParts(t *testing.T) {
	var out bytes.Buffer
	b := small(t, &out)
	rows := map[string]int{
		"publish": 12, "publish-http": 24, "requests": 6, "fanout": 8, "events": 4, "filters": 4, "idle": 1, "many": 3*4 + 1, "catchup": 11, "documents": 7, "callbacks": 8, "callback-idle": 1,
		"redis": 18, "cluster": 12, "flat": 4 + 2*3*4, "inventory": 8, "inventory-follow": 5, "sync": 2, "mirror": 2, "dump": 2,
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			out.Reset()
			var figures table
			run := p.run
			p.run = func(b *bench, t *table) {
				defer func() { figures = *t }()
				run(b, t)
			}
			if err := b.runPart(p); err != nil {
				t.Error(err)
			}
			t.Logf("%s", out.Bytes())
			if len(figures.rows) != rows[p.name] {
				t.Errorf("%d rows, want %d", len(figures.rows), rows[p.name])
			}
			for _, r := range figures.rows {
				// CPU comes in steps of 10 ms, and memory by pages: little work may have taken none.
				coarse := func(unit string) bool { return strings.Contains(r.figure, unit) }
				if !slices.ContainsFunc([]string{"CPU", "MiB", "KB", "bytes/"}, coarse) && !(r.floor[0] > 0 && r.ours[0] > 0) {
					t.Errorf("%s, %s: %v and %v", r.what, r.figure, r.floor, r.ours)
				}
			}
		})
	}
}

// A part that cannot run on this machine reports that, and is not a failure. Any other error is
// one.
func TestSkipped(t *testing.T) {
	t.Setenv("PATH", "")
	var out strings.Builder
	b := small(t, &out)
	err := b.runPart(part{name: "redis", run: (*bench).publishRedis})
	if err != nil || !strings.Contains(out.String(), "SKIPPED: it needs redis-server") {
		t.Errorf("%v, %q", err, out.String())
	}
	failing := func(*bench, *table) { must(context.Canceled) }
	if err := b.runPart(part{name: "x", run: failing}); !errors.Is(err, context.Canceled) {
		t.Errorf("a failure is not one: %v", err)
	}
}

func TestStatistics(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median of three = %v", m)
	}
	if m := median([]float64{4, 1, 2, 9}); m != 3 {
		t.Errorf("median of four = %v", m)
	}
	sorted := make([]uint32, 100)
	for i := range sorted {
		sorted[i] = uint32(i)
	}
	if a, b, c := quantile(sorted, .5), quantile(sorted, .99), quantile(sorted, 1); a != 50 || b != 99 || c != 99 {
		t.Errorf("quantiles = %v, %v, %v", a, b, c)
	}
	if r := ratios([]float64{2, 0, 4}, []float64{3, 1, 1}); !slices.Equal(r, []float64{1.5, .25}) {
		t.Errorf("ratios = %v", r)
	}
	for v, want := range map[float64]string{0: "0", .1234: "0.123", 1.5: "1.50", 15.04: "15.0", 999.6: "1,000", 1234: "1,234", 1234567: "1,234,600"} {
		if s := format(v); s != want {
			t.Errorf("format(%v) = %q, want %q", v, s, want)
		}
	}
}

func TestAims(t *testing.T) {
	for _, test := range []struct {
		aim
		floor, ours float64
		says, want  string
	}{
		{aim{}, 1, 100, "", ""},
		{aim{limit: 12}, 1, 11, "≤ 12.0", "met"},
		{aim{limit: 12}, 1, 13, "≤ 12.0", "MISSED"},
		{aim{limit: 12, least: true}, 1, 13, "≥ 12.0", "met"},
		{aim{limit: 12, least: true}, 1, 11, "≥ 12.0", "MISSED"},
		{aim{limit: 1.6, ratio: true}, 10, 15, "≤ 1.60 x", "met"},
		{aim{limit: 1.6, ratio: true}, 10, 17, "≤ 1.60 x", "MISSED"},
		{aim{limit: .8, ratio: true, least: true}, 10, 7, "≥ 0.800 x", "MISSED"},
		{aim{limit: 2, over: true}, 10, 11, "≤ 2.00 more", "met"},
		{aim{limit: 2, over: true}, 10, 13, "≤ 2.00 more", "MISSED"},
	} {
		var tab table
		tab.add("case", each(0, "figure").should(test.aim), sample{each: []float64{test.floor}}, sample{each: []float64{test.ours}})
		if got := tab.rows[0].verdict(); got != test.want || tab.rows[0].aim.String() != test.says {
			t.Errorf("%+v with %v and %v: %q, %q, want %q", test.aim, test.floor, test.ours, tab.rows[0].aim, got, test.want)
		}
	}
}

// Published changes are valid; a collection is created completely, and updates are of its
// resources.
func TestContent(t *testing.T) {
	const n = collection(2500)
	locs := map[string]bool{}
	for batch := range 3 {
		for _, c := range n.created(batch, 1000) {
			if err := c.Validate(); err != nil || c.Change != resourcesync.Created {
				t.Fatal(c, err)
			}
			locs[c.Loc] = true
		}
	}
	if len(locs) != int(n) {
		t.Errorf("%d resources, want %d", len(locs), n)
	}
	for _, c := range n.updated(100) {
		if !locs[c.Loc] || c.Change != resourcesync.Updated {
			t.Error(c)
		}
	}
	line, message := marked(messageSize)
	if len(message) != messageSize {
		t.Errorf("a delivered message has %d bytes, want %d", len(message), messageSize)
	}
	if c, err := resourcesync.ParseChange(bytes.TrimSpace(line)); err != nil || c.Validate() != nil {
		t.Errorf("the line cannot be published: %v, %v", err, c.Validate())
	}
	for _, p := range [][]byte{line, message} {
		stamp(p, 3<<feedShift|77, 1<<40+5)
		seq, at, rest, ok := readMark(append(p, "@@"...))
		if seq != 3<<feedShift|77 || at != 1<<40+5 || !ok || !bytes.HasSuffix(rest, markStart) {
			t.Errorf("readMark = %d, %d, %q, %v", seq, at, rest, ok)
		}
	}
	if _, _, _, ok := readMark([]byte("no mark but @@ in it")); ok {
		t.Error("a mark where there is none")
	}
}

// A reader detects lost and repeated messages, in messages with marks and in a catch-up.
func TestDisorder(t *testing.T) {
	b := small(t, io.Discard)
	_, message := marked(messageSize)
	at := func(seq uint32) []byte {
		m := bytes.Clone(message)
		stamp(m, seq, 0)
		return m
	}
	batch := func(after uint64, n int) []byte {
		return feed.NewBatch("s", feed.Cursor{Position: after, Micros: int64(after)},
			feed.Cursor{Position: after + uint64(n), Micros: int64(after) + int64(n)}, newContent()[:n]).JSON()
	}
	for _, test := range []struct {
		name       string
		batches    bool
		messages   [][]byte
		deliveries int
		disorder   int
	}{
		{"two publishes in a message", false, [][]byte{slices.Concat(at(1), at(2)), at(3)}, 3, 0},
		{"two publishers", false, [][]byte{at(1), at(1<<feedShift | 1), at(2)}, 3, 0},
		{"lost", false, [][]byte{at(1), at(3)}, 2, 1},
		{"repeated", false, [][]byte{at(1), at(1)}, 2, 1},
		{"catch-up", true, [][]byte{batch(0, 10), batch(10, 3)}, 13, 0},
		{"a hole in it", true, [][]byte{batch(0, 10), batch(11, 3)}, 13, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, s, n := b.newReader(), &subscriber{}, 0
			for _, m := range test.messages {
				if test.batches {
					n += r.batch(s, m)
				} else {
					n += r.mark(s, m, 0)
				}
			}
			if n != test.deliveries || r.disorder != test.disorder || (r.check() == nil) != (test.disorder == 0) {
				t.Errorf("got %d deliveries and %d out of order, %v; want %d and %d", n, r.disorder, r.check(), test.deliveries, test.disorder)
			}
		})
	}
}

// A sink detects a delivery that does not follow the previous one.
func TestSink(t *testing.T) {
	s := &sink{at: map[string]uint64{}}
	s.moved.L = &s.mu
	for i, positions := range [][2]string{{"0", "1"}, {"1", "2"}, {"1", "2"}, {"2", "3"}} {
		r := httptest.NewRequest(http.MethodPost, "/callback/1", bytes.NewReader(delivered(newContent()[:7]).XML()))
		r.Header.Set("RS-Previous", positions[0])
		r.Header.Set("RS-Position", positions[1])
		s.take(httptest.NewRecorder(), r)
		want := sinkReport{Deliveries: i + 1, Changes: 7 * (i + 1), Disorder: min(i/2, 1)}
		if s.report != want {
			t.Errorf("%+v, want %+v", s.report, want)
		}
	}
}
