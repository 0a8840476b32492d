package diskpages

import (
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/internal/inventory"
)

func open(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The store keeps records and pages of each set when it is closed.
func TestReopen(t *testing.T) {
	dir, ctx := filepath.Join(t.TempDir(), "a", "b"), t.Context()
	s := open(t, dir, Options{})
	if err := s.Update(ctx, "demo", inventory.Update{Change: func(r *inventory.Record) error {
		r.Term, r.Head = 5, []byte("head")
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, "demo", 0, 5, []inventory.Page{{Number: 2, Bytes: []byte("two")}, {Number: 300, Bytes: []byte{}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil {
		t.Error("the directory opens twice")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	defer s.Close()
	r, err := s.Load(ctx, "demo")
	if err != nil || string(r.Head) != "head" || r.Term != 5 || r.Now == 0 || r.Log.Set != "demo" {
		t.Errorf("the record is %+v, %v", r, err)
	}
	pages, err := s.Get(ctx, "demo", 0, []uint64{300, 2, 1})
	if err != nil || pages[0] == nil || string(pages[1]) != "two" || pages[2] != nil {
		t.Errorf("the pages are %q, %v", pages, err)
	}
	if r, err := s.Load(ctx, "demo~baseline"); err != nil || r.Term != 0 || r.Head != nil {
		t.Errorf("another set has the record %+v, %v", r, err)
	}
	if _, err := s.Load(ctx, "demo/1"); err == nil {
		t.Error("a set's name has a slash")
	}
}
