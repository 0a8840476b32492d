package redislog

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// source is a memory to copy, with a set of n changes.
func source(t *testing.T, n int) *Log {
	t.Helper()
	l := start(t, shared.url(), Options{Prefix: prefix()})
	if err := l.Make(t.Context(), "set", feed.Description{}, 10_000); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("a", n), Key: "key"}); err != nil {
		t.Fatal(err)
	}
	return l
}

func openImport(t *testing.T, id string, opts Options) *Import {
	t.Helper()
	m, err := OpenImport(t.Context(), connect(t, shared.url(), redisconn.Options{}), id, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestTwoImports begins a second copy into the same store. The first copy must not write
// any more, least of all after the second copy is finished.
func TestTwoImports(t *testing.T) {
	l := source(t, 25)
	s, err := l.State(t.Context(), "set")
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Prefix: prefix()}
	first := openImport(t, l.ID(), opts)
	if err := first.Begin(t.Context(), s, s.Floor); err != nil {
		t.Fatal(err)
	}
	second := openImport(t, l.ID(), opts)
	if _, err := changelog.Copy(t.Context(), l, second, nil, nil); err != nil {
		t.Fatal(err)
	}
	copied := start(t, shared.url(), opts)
	before := all(t, copied, feed.Cursor{})
	block := changelog.PlacedBlock{CutBlock: changelog.CutBlocks(changes("b", 1), 26, 10_000)[0], Last: feed.Cursor{Position: 26, Micros: s.Head.Micros + 1}}
	for what, err := range map[string]error{
		"begin":   first.Begin(t.Context(), s, s.Floor),
		"go on":   first.Begin(t.Context(), s, s.Head),
		"add":     first.Add(t.Context(), "set", s.Head, []changelog.PlacedBlock{block}),
		"keys":    first.AddKeys(t.Context(), "set", []changelog.Known{{Key: "other", Number: 2}}),
		"deleted": first.Deleted(t.Context(), "set", changelog.Left{Upto: 1, Ever: 1}),
		"finish":  first.Finish(t.Context()),
	} {
		if !errors.Is(err, errBusy) {
			t.Errorf("%s: %v", what, err)
		}
	}
	after := all(t, copied, feed.Cursor{})
	if len(after) != 25 || after[24].Cursor != before[24].Cursor {
		t.Errorf("%d entries, the last %v", len(after), after[len(after)-1].Cursor)
	}
	now, err := copied.State(t.Context(), "set")
	now.Epochs = s.Epochs // it was opened, which begins one
	if err != nil || now != s {
		t.Errorf("state is %+v, want %+v: %v", now, s, err)
	}
}

// TestLateSteps repeats the steps of a copy later: after further steps, and after hubs
// have used the copy.
func TestLateSteps(t *testing.T) {
	ctx := t.Context()
	l := source(t, 25)
	s := state(t, l)
	o := Options{Prefix: prefix()}
	m := openImport(t, l.ID(), o)
	known := []changelog.Known{{Key: "key", Number: 1, After: s.Floor, Cursor: s.Head}}
	block := changelog.PlacedBlock{CutBlock: changelog.CutBlocks(changes("a", 25), 1, 10_000)[0], Last: s.Head}
	var steps []int64 // the number before each step
	for _, step := range []func() error{
		func() error { return m.Begin(ctx, s, s.Floor) },
		func() error { return m.Add(ctx, "set", s.Floor, []changelog.PlacedBlock{block}) },
		func() error { return m.Begin(ctx, s, s.Head) },
		func() error { return m.AddKeys(ctx, "set", known) },
	} {
		steps = append(steps, m.steps)
		ok(t, step())
	}
	last := m.steps
	late := func(what string, number int64, step func() error) {
		t.Helper()
		m.steps = number
		if err := step(); !errors.Is(err, errBusy) {
			t.Errorf("%s: error is %v", what, err)
		}
		m.steps = last
	}
	late("begin", steps[0], func() error { return m.Begin(ctx, s, s.Head) })
	late("delete", steps[2], func() error {
		return m.step(ctx, "delete", "set", s.Head.Micros, s.Head.Micros, s.Begin)
	})
	ok(t, m.Finish(ctx))

	copied := start(t, shared.url(), o)
	_, err := copied.Append(ctx, "set", changelog.Publish{Changes: changes("b", 1), Key: "other"})
	ok(t, err)
	want := seen(t, copied)
	m.steps = steps[3]
	ok(t, m.AddKeys(ctx, "set", known)) // the last step, once more
	if got := seen(t, copied); !reflect.DeepEqual(got, want) {
		t.Errorf("it became\n\t%v, it was\n\t%v", got, want)
	}
	remove(t, copied)
	makeSet(t, copied, 10)
	add(t, copied, "accepted", 3)
	late("delete", last, func() error {
		return m.step(ctx, "delete", "set", s.Head.Micros, s.Head.Micros, s.Begin)
	})
	if n := len(all(t, copied, feed.Cursor{})); n != 3 {
		t.Errorf("%d entries", n)
	}
}

// TestImportIntoEmptied empties Redis in the middle of a copy.
func TestImportIntoEmptied(t *testing.T) {
	l := source(t, 25)
	opts := Options{Prefix: prefix()}
	m := openImport(t, l.ID(), opts)
	if err := shared.admin(t).Del(t.Context(), opts.Prefix+":memory").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := changelog.Copy(t.Context(), l, m, nil, nil); err == nil || !strings.Contains(err.Error(), "emptied") {
		t.Errorf("error is %v", err)
	}
	other := start(t, shared.url(), opts) // it makes a memory there
	if _, err := changelog.Copy(t.Context(), l, m, nil, nil); err == nil || !strings.Contains(err.Error(), other.ID()) {
		t.Errorf("error is %v", err)
	}
}

// TestCopyIsPacked copies changes that were published one at a time. The copy must have
// them in full blocks.
func TestCopyIsPacked(t *testing.T) {
	l := source(t, 1)
	for range 2_999 {
		if _, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("b", 1)}); err != nil {
			t.Fatal(err)
		}
	}
	opts := Options{Prefix: prefix()}
	if _, err := changelog.Copy(t.Context(), l, openImport(t, l.ID(), opts), nil, nil); err != nil {
		t.Fatal(err)
	}
	keys := start(t, shared.url(), opts).keys("set")
	admin := shared.admin(t)
	if packed, live := admin.HLen(t.Context(), keys[1]).Val(), admin.HLen(t.Context(), keys[2]).Val(); packed != 3 || live != 0 {
		t.Errorf("3,000 changes are in %d packed and %d live blocks", packed, live)
	}
}

func TestOpenExisting(t *testing.T) {
	opts := Options{Prefix: prefix(), Existing: true}
	if _, err := openAt(t, shared.url(), opts); err == nil || !strings.Contains(err.Error(), "no change memory") {
		t.Errorf("error is %v", err)
	}
	if n := shared.admin(t).Exists(t.Context(), opts.Prefix+":memory").Val(); n != 0 {
		t.Error("a memory was made")
	}
	openImport(t, "ID", opts)
	if _, err := openAt(t, shared.url(), opts); !errors.Is(err, changelog.ErrUnfinished) {
		t.Errorf("error is %v", err)
	}
}

// TestTornImport tears each command of a copy, see TestTorn, and copies again
// between the two starts.
func TestTornImport(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts Redis for every command of an import")
	}
	l := start(t, shared.url(), Options{Prefix: prefix()})
	makeSet(t, l, 20)
	history(t, l)
	ok(t, l.Make(t.Context(), "gone", feed.Description{}, 20))
	ok(t, l.Delete(t.Context(), "gone"))
	want := seen(t, l)

	s := newServer(t, "--appendfsync", "always")
	copyTo := func(opts Options) {
		t.Helper()
		m, err := OpenImport(t.Context(), connect(t, s.url(), redisconn.Options{}), l.ID(), opts)
		if errors.Is(err, changelog.ErrCopied) {
			return
		}
		ok(t, err)
		defer m.Close()
		_, err = changelog.Copy(t.Context(), l, m, nil, nil)
		ok(t, err)
	}
	before := readAOF(t, s)
	copyTo(Options{})
	written := readAOF(t, s)[len(before):]
	for i, at := range commandStarts(t, written) {
		s.kill()
		ok(t, os.WriteFile(aof(s), append(bytes.Clone(before), written[:at+3]...), 0o600))
		ok(t, s.start())
		copyTo(Options{})
		first := start(t, s.url(), Options{Prefix: "rshub", Existing: true}) // so no epoch begins
		if got := seen(t, first); !reflect.DeepEqual(got, want) {
			t.Fatalf("torn in command %d it is\n\t%v, want\n\t%v", i, got, want)
		}
		s.kill()
		ok(t, s.start())
		second := start(t, s.url(), Options{Prefix: "rshub", Existing: true})
		if got := seen(t, second); !reflect.DeepEqual(got, want) {
			t.Fatalf("torn in command %d it is after the second start\n\t%v, want\n\t%v", i, got, want)
		}
		_ = first.Close()
		_ = second.Close()
	}
}

// seen is what look sees, and the keys and deleted sets.
func seen(t *testing.T, l *Log) []any {
	t.Helper()
	all := look(t, l)
	for k, err := range l.Keys(t.Context(), "set") {
		ok(t, err)
		all = append(all, k)
	}
	deleted, err := l.Deleted(t.Context())
	ok(t, err)
	return append(all, l.ID(), deleted)
}
