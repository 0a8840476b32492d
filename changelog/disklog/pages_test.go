package disklog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

func TestPages(t *testing.T) {
	t.Parallel()
	storetest.Store(t, env)
}

func TestInventories(t *testing.T) {
	t.Parallel()
	storetest.Inventory(t, env)
}

// env returns the memory of one test.
func env(t *testing.T) storetest.Env {
	l := start(t, "data", Options{FS: vfs.NewMem()})
	t.Cleanup(func() { stop(t, l) })
	return storetest.Env{Store: l.Inventories(), Log: l}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error = %v, want %v", err, want)
	}
}

// load returns the inventory record of the set.
func load(t testing.TB, s inventory.Store) inventory.Record {
	t.Helper()
	r, err := s.Load(t.Context(), "set")
	ok(t, err)
	return r
}

// setRecord changes the inventory record of the set.
func setRecord(t testing.TB, s inventory.Store, term uint64, head string, u inventory.Update) inventory.Record {
	t.Helper()
	u.Change = func(r *inventory.Record) error {
		r.Term, r.Head = term, []byte(head)
		return nil
	}
	ok(t, s.Update(t.Context(), "set", u))
	return load(t, s)
}

// somePages returns the pages with numbers in [from, to].
func somePages(from, to uint64) (pages []inventory.Page) {
	for n := from; n <= to; n++ {
		pages = append(pages, inventory.Page{Number: n, Bytes: fmt.Appendf(nil, "%d\x00%s", n, strings.Repeat("p", int(n%100)))})
	}
	return pages
}

// checkPages returns the numbers of the existing pages, and checks their bytes.
func checkPages(t testing.TB, s inventory.Store, begin int64) (numbers []uint64) {
	t.Helper()
	for n, err := range s.Numbers(t.Context(), "set", begin) {
		ok(t, err)
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	found, err := s.Get(t.Context(), "set", begin, numbers)
	ok(t, err)
	for i, n := range numbers {
		if want := somePages(n, n)[0].Bytes; string(found[i]) != string(want) {
			t.Errorf("page %d = %q, want %q", n, found[i], want)
		}
	}
	return numbers
}

// TestInventoryAfterCrash checks that a crash leaves a prefix of the writes to the log and to the
// inventory, including everything before the last write acknowledged as durable.
func TestInventoryAfterCrash(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	l := start(t, "data", Options{FS: disk})
	defer stop(t, l)
	ctx, s := t.Context(), l.Inventories()
	ok(t, l.Make(ctx, "set", feed.Description{}, 10))
	var heads []feed.Cursor
	for i := range 3 {
		a, err := l.Append(ctx, "set", changelog.Publish{Changes: changes("a", 1)})
		ok(t, err)
		heads = append(heads, a[0].Cursor)
		r := setRecord(t, s, 5, fmt.Sprint("begun ", i), inventory.Update{})
		ok(t, s.Put(ctx, "set", r.Log.Begin, 5, somePages(uint64(10*i)+1, uint64(10*i)+10)))
		setRecord(t, s, 6, fmt.Sprint(i), inventory.Update{At: heads[i], Durable: i == 1})
	}
	for _, unsynced := range []int{0, 100} {
		crashed := start(t, "data", Options{FS: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, 2))})})
		s := crashed.Inventories()
		r := load(t, s)
		if r.Log.Head != heads[2] {
			t.Errorf("record = %+v, want the log at %v", r, heads[2])
		}
		switch pages := checkPages(t, s, r.Log.Begin); {
		case string(r.Head) == "1" && len(pages) == 20, string(r.Head) == "begun 2" && r.Term == 5, string(r.Head) == "2" && len(pages) == 30:
		default:
			t.Errorf("got %d pages with record %+v", len(pages), r)
		}
		stop(t, crashed)
	}
}

// TestDamagedRecord checks that a damaged record is an error.
func TestDamagedRecord(t *testing.T) {
	l := start(t, "data", Options{FS: vfs.NewMem()})
	defer stop(t, l)
	s := l.Inventories()
	ok(t, l.Make(t.Context(), "set", feed.Description{}, 10))
	b := l.db.NewBatch()
	put(b, invKey("set"), []byte("nonsense"))
	ok(t, l.commit(b))
	_, err := s.Load(t.Context(), "set")
	wantErr(t, changelog.ErrCorrupt, err)
}
