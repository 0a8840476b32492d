package inventory

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// gzipped counts what the replies of an Ask take when they are packed.
func gzipped(ask Ask, n *int) Ask {
	return func(ctx context.Context, q Question) (Reply, error) {
		reply, err := ask(ctx, q)
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(reply.AppendJSON(nil))
		w.Close()
		*n += b.Len()
		return reply, err
	}
}

// BenchmarkCompare finds ten faults in a million resources, for which some changes wait.
func BenchmarkCompare(b *testing.B) {
	v, root, all := bigTree(b)
	head := root.Cursor
	for _, waiting := range []int{0, 80_000} {
		src := newSource(1, 1)
		src.head = head
		hub := NewOverlay(v.Tree(root))
		own := NewOverlay(v.Tree(root))
		batch := make([]feed.Entry, waiting)
		for i := range batch {
			batch[i] = src.existing(all[src.r.IntN(len(all))].Change.Loc)
		}
		for _, o := range []*Overlay{hub, own} {
			if err := o.Add(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
		for range 10 {
			e := src.existing(all[src.r.IntN(len(all))].Change.Loc)
			e.Change = resourcesync.Change{Loc: e.Change.Loc, Change: resourcesync.Deleted}
			if err := own.Add(b.Context(), []feed.Entry{e}); err != nil {
				b.Fatal(err)
			}
		}
		theirs, mine := hub.State(src.head), own.State(src.head)
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			b.ReportAllocs()
			l, packed := new(line), 0
			done := timer(b, "comparison")
			for b.Loop() {
				found := 0
				for _, err := range Compare(b.Context(), mine, ByContent, Range{}, gzipped(l.to(theirs), &packed)) {
					if err != nil {
						b.Fatal(err)
					}
					found++
				}
				if found != 10 {
					b.Fatalf("%d differences", found)
				}
			}
			done(b.N)
			for unit, n := range map[string]int{"questions": l.asked, "B-up": l.up, "B-down": l.down, "B-gzip-down": packed} {
				b.ReportMetric(float64(n)/float64(b.N), unit)
			}
			if asked, sent := l.asked/b.N, (l.up+l.down)/b.N; asked > 4 || sent > 200_000 { // a Look comes before
				b.Errorf("%d questions, %d bytes", asked, sent)
			}
			b.ReportMetric(float64(l.busy.Milliseconds())/float64(b.N), "hub-ms")
		})
	}
}

// BenchmarkOverlay adds changes at random places of a million resources.
func BenchmarkOverlay(b *testing.B) {
	v, root, all := bigTree(b)
	src := newSource(1, 1)
	batch := make([]feed.Entry, 80_000)
	for i := range batch {
		batch[i] = src.existing(all[src.r.IntN(len(all))].Change.Loc)
		batch[i].Position += root.Cursor.Position
	}
	b.ReportAllocs()
	done := timer(b, "change")
	for b.Loop() {
		o := NewOverlay(v.Tree(root))
		for i := 0; i < len(batch); i += 1000 {
			if err := o.Add(b.Context(), batch[i:i+1000]); err != nil {
				b.Fatal(err)
			}
			o.State(batch[i+999].Cursor)
		}
		b.ReportMetric(float64(o.Bytes())/float64(o.Len()), "B/change")
	}
	done(len(batch) * b.N)
	b.ReportMetric(float64(len(batch)*b.N)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkLook looks at a prefix of a million resources, for which some changes wait.
func BenchmarkLook(b *testing.B) {
	v, root, all := bigTree(b)
	src := newSource(1, 1)
	src.head = root.Cursor
	o := NewOverlay(v.Tree(root))
	for range 80 {
		batch := make([]feed.Entry, 1000)
		for i := range batch {
			batch[i] = src.existing(all[src.r.IntN(len(all))].Change.Loc)
		}
		if err := o.Add(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	s := o.State(src.head)
	for _, prefix := range []string{"", all[123_456].Change.Loc[:60]} {
		b.Run(fmt.Sprintf("%d", len(prefix)), func(b *testing.B) {
			for b.Loop() {
				look, err := s.Look(b.Context(), Prefix(prefix))
				if err != nil {
					b.Fatal(err)
				}
				look.AppendJSON(nil)
			}
		})
	}
}
