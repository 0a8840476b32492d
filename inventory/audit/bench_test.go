package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/inventory/sourcetest"
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
	const n = 1_000_000
	all := sourcetest.PEPs(n)
	head := feed.Cursor{Position: n, Micros: 1}
	base := stored(b, inventory.Options{Cache: inventory.NewCache(32 << 20)}, head, all)
	for _, waiting := range []int{0, 80_000} {
		src := sourcetest.New(1, 1)
		src.Head = head
		hub := base.Overlay()
		own := base.Overlay()
		batch := make([]feed.Entry, waiting)
		for i := range batch {
			batch[i] = src.Existing(all[src.IntN(len(all))].Change.Loc)
		}
		for _, o := range []*inventory.Overlay{hub, own} {
			if err := o.Add(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
		for range 10 {
			e := src.Existing(all[src.IntN(len(all))].Change.Loc)
			e.Change = resourcesync.Change{Loc: e.Change.Loc, Change: resourcesync.Deleted}
			if err := own.Add(b.Context(), []feed.Entry{e}); err != nil {
				b.Fatal(err)
			}
		}
		theirs, mine := hub.State(src.Head), own.State(src.Head)
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			b.ReportAllocs()
			l, packed := new(line), 0
			for b.Loop() {
				found := 0
				for _, err := range Compare(b.Context(), mine, digest.ByContent, inventory.Range{}, gzipped(l.to(theirs), &packed)) {
					if err != nil {
						b.Fatal(err)
					}
					found++
				}
				if found != 10 {
					b.Fatalf("%d differences", found)
				}
			}
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

// BenchmarkLook looks at a prefix of a million resources, for which some changes wait.
func BenchmarkLook(b *testing.B) {
	const n = 1_000_000
	all := sourcetest.PEPs(n)
	src := sourcetest.New(1, 1)
	src.Head = feed.Cursor{Position: n, Micros: 1}
	o := stored(b, inventory.Options{Cache: inventory.NewCache(32 << 20)}, src.Head, all).Overlay()
	for range 80 {
		batch := make([]feed.Entry, 1000)
		for i := range batch {
			batch[i] = src.Existing(all[src.IntN(len(all))].Change.Loc)
		}
		if err := o.Add(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	s := o.State(src.Head)
	for _, prefix := range []string{"", all[123_456].Change.Loc[:60]} {
		b.Run(fmt.Sprintf("%d", len(prefix)), func(b *testing.B) {
			for b.Loop() {
				look, err := LookAt(b.Context(), s, inventory.Prefix(prefix))
				if err != nil {
					b.Fatal(err)
				}
				look.AppendJSON(nil)
			}
		})
	}
}
