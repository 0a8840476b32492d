package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

const set = "set"

// A history is an inventory and its expected content.
type history struct {
	*testing.T
	Env
	ctx      context.Context
	random   *sourcetest.Source
	store    *faultyStore // of the hub faulty
	faulty   *hub
	sound    *hub
	owner    *hub // the hub with the claim, or nil
	term     uint64
	reader   *inventory.Inventory // with its own cache
	log      []feed.Entry
	start    feed.Cursor
	content  map[uint64]sourcetest.Set // of the known roots, by Root.Upto
	possible []possibleRoot            // roots that may have been committed since the last check
	pinned   map[uint64]bool           // roots that must stay
	pins     int
}

// A hub is a hub of a history.
type hub struct {
	inv    *inventory.Inventory
	writer *inventory.Writer // nil if the hub never had the claim
}

// A possibleRoot is a root that a commit may have made.
type possibleRoot struct {
	cursor  feed.Cursor
	content sourcetest.Set
}

func begin(t *testing.T, e Env, seed uint64) *history {
	h := &history{T: t, Env: e, ctx: t.Context(), random: sourcetest.New(seed, 400), store: newFaultyStore(e.Store),
		content: map[uint64]sourcetest.Set{0: {}}, pinned: map[uint64]bool{}}
	h.must(h.Log.Make(h.ctx, set, feed.Description{}, 1000))
	state, err := h.Log.State(h.ctx, set)
	h.must(err)
	h.start = state.Head
	o := inventory.Options{PageBytes: []int{256, 700, 6128, 1500}[seed%4], Cache: inventory.NewCache(20_000)}
	h.faulty, h.sound = &hub{inv: inventory.New(h.store, set, o)}, &hub{inv: inventory.New(e.Store, set, o)}
	h.reader = inventory.New(e.Store, set, inventory.Options{PageBytes: o.PageBytes, Cache: inventory.NewCache(5_000)})
	return h
}

// claim gives a hub the claim, unless it has it, and returns its writer.
func (h *history) claim(b *hub) *inventory.Writer {
	if h.owner != b {
		h.owner = b
		h.term++
		b.writer = b.inv.Writer(h.term)
	}
	return b.writer
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// do does an operation, which must succeed.
func (h *history) do(operation func() error) {
	h.Helper()
	h.must(operation())
	h.learn()
}

// publish appends n changes to the log.
func (h *history) publish(n int) {
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = h.random.Next().Change
	}
	a, err := h.Log.Append(h.ctx, set, changelog.Publish{Changes: changes})
	h.must(err)
	h.log = append(h.log, feed.NewBatch(set, a[0].After, a[0].Cursor, changes).Entries...)
}

// end returns the cursor of the newest entry.
func (h *history) end() feed.Cursor {
	if len(h.log) == 0 {
		return h.start
	}
	return h.log[len(h.log)-1].Cursor
}

func (h *history) newest() inventory.Root {
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	return head.Newest()
}

// expect records a root that may be committed from now on: content and the entries after it.
func (h *history) expect(cursor feed.Cursor, content sourcetest.Set, entries []feed.Entry) {
	content = maps.Clone(content)
	for _, e := range entries {
		content.Add(e)
	}
	h.possible = append(h.possible, possibleRoot{cursor, content})
}

func (h *history) commit(b *hub) func() error { return h.commitLog(b, 0) }

func (h *history) commitRuns(b *hub) func() error { return h.commitLog(b, 3) }

// commitLog returns a function that commits the log after the newest root, sometimes not all of it, as n runs and the
// rest.
func (h *history) commitLog(b *hub, n int) func() error {
	w := h.claim(b)
	base := h.newest()
	entries, to := h.log[base.Cursor.Position:], base.Cursor
	if len(entries) > 0 && h.random.IntN(3) == 0 {
		entries = entries[:1+h.random.IntN(len(entries))]
	}
	if len(entries) > 0 {
		to = entries[len(entries)-1].Cursor
	} else if to.IsZero() {
		to = h.start
	}
	h.expect(to, h.content[base.Upto], entries)
	ends := make([]int, n)
	for i := range ends {
		ends[i] = h.random.IntN(len(entries) + 1)
	}
	slices.Sort(ends)
	return func() (err error) {
		c := inventory.Changes{Base: base, To: to}
		if n > 0 {
			c.Runs, err = w.NewRuns(h.ctx, base)
		}
		from := 0
		for _, to := range ends {
			if err == nil {
				err = c.Runs.Add(h.ctx, sorted(entries[from:to]), nil)
			}
			from = to
		}
		if c.Sorted = sorted(entries[from:]); err == nil {
			_, err = w.Commit(h.ctx, c)
		}
		return err
	}
}

// sorted yields the newest entry of each loc, in the order of loc.
func sorted(entries []feed.Entry) iter.Seq[*feed.Entry] {
	var b inventory.Backlog
	b.Add(entries)
	return b.Entries()
}

func (h *history) commitAnew(b *hub) func() error {
	h.expect(h.end(), sourcetest.Set{}, h.log)
	w, base := h.claim(b), h.newest()
	return func() error {
		_, err := w.Commit(h.ctx, inventory.Changes{Base: base, Anew: true, To: h.end(), Sorted: sorted(h.log), Incomplete: "a test"})
		return err
	}
}

// forget reverts to an older cursor, as if the log had lost its newest entries.
func (h *history) forget(b *hub) func() error {
	w, base, to := h.claim(b), h.newest(), h.start
	if base.Cursor.Position > 0 {
		if n := h.random.Uint64N(base.Cursor.Position); n > 0 {
			to = h.log[n-1].Cursor
		}
	}
	h.expect(to, h.content[base.Upto], nil)
	maps.DeleteFunc(h.possible[len(h.possible)-1].content, func(_ string, e feed.Entry) bool { return e.Position > to.Position })
	return func() error {
		_, err := w.Forget(h.ctx, base, to, "a test")
		return err
	}
}

func (h *history) pin(b *hub) func() error {
	return func() error {
		h.pins++
		root, err := b.inv.Pin(h.ctx, 0, fmt.Sprint("reader ", h.pins), time.Hour)
		if err == nil && root.Upto > 0 {
			h.pinned[root.Upto] = true
		}
		return err
	}
}

func (h *history) list(b *hub) func() error {
	w, root := h.claim(b), h.newest()
	if root.Upto == 0 {
		return func() error { return nil }
	}
	return func() error { return w.List(h.ctx, root.Upto) }
}

func (h *history) complete(b *hub) func() error {
	return func() error { return b.inv.SetComplete(h.ctx, h.end(), "") }
}

func (h *history) shrink(b *hub) func() error {
	w := h.claim(b)
	return func() error { return errors.Join(w.Shrink(h.ctx), w.Sweep(h.ctx)) }
}

func (h *history) reset(b *hub) func() error {
	w := h.claim(b)
	return func() error {
		err := w.Reset(h.ctx, "a test")
		if h.newest().Upto == 0 {
			clear(h.pinned)
		}
		return err
	}
}

// unpinAll removes all pins.
func (h *history) unpinAll() {
	h.Helper()
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	for _, k := range head.Roots {
		for _, p := range k.Pins {
			h.must(h.sound.inv.Unpin(h.ctx, k.Upto, p.Holder))
		}
	}
	clear(h.pinned)
}

// learn determines the expected content of the roots.
func (h *history) learn() *inventory.Head {
	h.Helper()
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	all := map[uint64]sourcetest.Set{0: {}}
	for _, k := range head.Roots {
		want, known := h.content[k.Upto]
		if !known {
			i := slices.IndexFunc(h.possible, func(r possibleRoot) bool { return r.cursor == k.Cursor })
			if i < 0 {
				h.Fatalf("unexpected root %d at %v", k.Upto, k.Cursor)
			}
			want = h.possible[i].content
		}
		all[k.Upto] = want
	}
	h.content, h.possible = all, nil
	return head
}

// check compares all roots with their expected content, and verifies their pages. No pinned root was dropped, unless
// there were too many.
func (h *history) check() {
	h.Helper()
	head := h.learn()
	if len(head.Roots) > inventory.MaxRoots {
		h.Fatalf("roots: got %d, want at most %d", len(head.Roots), inventory.MaxRoots)
	}
	for _, k := range head.Roots {
		h.checkContent(k.Root, h.content[k.Upto].Entries())
	}
	for upto := range h.pinned {
		if slices.ContainsFunc(head.Roots, func(k inventory.Kept) bool { return k.Upto == upto }) {
			continue
		}
		if len(head.Roots) < inventory.MaxRoots {
			h.Fatalf("root %d was dropped although it was pinned", upto)
		}
		delete(h.pinned, upto)
	}
	h.must(h.reader.Check(h.ctx))
}

func (h *history) checkContent(root inventory.Root, want []feed.Entry) {
	h.Helper()
	n := 0
	var sum digest.Tally
	for e, err := range h.reader.Tree(root).Walk(h.ctx, inventory.Range{}) {
		h.must(err)
		if n == len(want) || !reflect.DeepEqual(*e, want[n]) {
			h.Fatalf("resource %d of the root at %v: got %+v, want the one of %d", n, root.Cursor, *e, len(want))
		}
		one := digest.TallyOf(e)
		sum.Add(&one)
		n++
	}
	if n != len(want) || root.Tally != sum {
		h.Fatalf("root at %v: got %d resources and tally %+v, want %d and %+v", root.Cursor, n, root.Tally, len(want), sum)
	}
}

// settle removes what is not needed. Then the store has the pages of the newest root and of the roots of
// Resource Lists, and no others.
func (h *history) settle() {
	h.Helper()
	h.unpinAll()
	h.do(h.commit(h.sound))
	h.do(h.shrink(h.sound))
	h.check()
	rec, head, err := h.reader.Load(h.ctx)
	h.must(err)
	if len(head.Roots) > 3 || head.Garbage != 0 {
		h.Fatalf("settled inventory: got %d roots and garbage %d, want at most 3 and 0", len(head.Roots), head.Garbage)
	}
	most := uint64(0)
	for _, k := range head.Roots {
		most += k.Pages
	}
	pages := uint64(len(numbers(h.T, h.Store, set, rec.Log.Begin)))
	if least := head.Newest().Pages; pages < least || pages > most {
		h.Fatalf("pages of %d roots: got %d, want %d to %d", len(head.Roots), pages, least, most)
	}
}
