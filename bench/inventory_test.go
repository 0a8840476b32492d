//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	hubclient "github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// smallInventory is a bench with small inventories.
func smallInventory(t *testing.T) *bench {
	b := small(t)
	b.resources, b.followed, b.looks = 3000, 400*time.Millisecond, 3
	return b
}

// The parts that need no program to be built, on the disk and on a real Redis.
func TestInventoryParts(t *testing.T) {
	b := smallInventory(t)
	for _, part := range []struct {
		run  func(*table) error
		rows int
	}{
		{b.inventoryDisk, 8}, {b.inventoryRedis, 9}, {b.inventoryPublishDisk, 6}, {b.inventoryPublishRedis, 6},
	} {
		var tab table
		if err := part.run(&tab); err != nil {
			t.Error(err)
		}
		if len(tab.rows) != part.rows {
			t.Errorf("%d rows, want %d", len(tab.rows), part.rows)
		}
		for _, r := range tab.rows {
			// What is above idle may be nothing in so small an inventory.
			if none := strings.Contains(r.Figure, "CPU") || strings.Contains(r.Figure, "MiB") || strings.HasPrefix(r.Figure, "bytes/resource"); !none && !(r.Floor[0] > 0 && r.Rshub[0] > 0) {
				t.Errorf("%s, %s: %v and %v", r.Case, r.Figure, r.Floor, r.Rshub)
			}
		}
	}
}

// What keeps up commits, and writes something.
func TestInventoryFollow(t *testing.T) {
	b := smallInventory(t)
	b.resources, b.followed = 300, 5*time.Second // so few are committed each second
	m, err := b.newOnDisk()
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	var tab table
	if err := b.inventoryFollow(&tab, m); err != nil {
		t.Fatal(err)
	}
	for _, r := range tab.rows {
		if !strings.Contains(r.Figure, "CPU") && r.Rshub[0] <= 0 {
			t.Errorf("%s: %v", r.Figure, r.Rshub)
		}
	}
	if len(tab.rows) != 4 {
		t.Errorf("%d rows, want 4", len(tab.rows))
	}
}

// The parts that need the program.
func TestInventoryOfAHub(t *testing.T) {
	b := smallInventory(t)
	b.ops, b.program = "127.0.0.1:0", filepath.Join(t.TempDir(), "rshub")
	if err := build(b.ctx, b.program, "rshub"); err != nil {
		t.Fatal(err)
	}
	n := collection(b.resources)
	d, err := b.inventoryDir(n, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	err = d.withHub(func(hub *server) error {
		u, err := b.readBaseline(hub, "/sets/"+benchSet+"/changes?since=baseline", n, nil)
		if u.first <= 0 {
			t.Errorf("%+v", u)
		}
		for i, faults := range []int{0, 10} {
			w := &wire{keep: true}
			a := &auditor{bench: b, hub: hub, own: hubclient.Always(d.own[i]), faults: faults}
			if aerr := a.audit(w); aerr != nil {
				t.Errorf("%d faults: %v", faults, aerr)
			}
			if r := w.requests.Load(); r == 0 || r > 5 || int(r) != len(w.kept) || w.bytes.Load() == 0 || faults == 0 && r != 1 {
				t.Errorf("%d faults: %d requests, %d were kept, %d bytes", faults, r, len(w.kept), w.bytes.Load())
			}
			a.faults++
			if a.audit(&wire{}) == nil {
				t.Error("a wrong number of faults was not noticed")
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A reader of baselines notices what is missing.
func TestBaselineCheck(t *testing.T) {
	w := feed.NewBatch("s", feed.Cursor{}, feed.Cursor{Position: 2, Micros: 2}, []resourcesync.Change{collection(9).change(1, 0), collection(9).change(2, 0)})
	entries := string(w.JSON())
	entries = entries[strings.Index(entries, "["):]
	part := func(after, cursor string) []byte {
		return []byte(`{"set":"s","baseline":true,"after":"` + after + `","cursor":"` + cursor + `","resources":` + entries)
	}
	var r reader
	var s subscriber
	n := r.baseline(&s, part("9-9~0", "9-9~2")) + r.baseline(&s, part("9-9~2", "9-9~4"))
	if n != 4 || r.disorder != 0 {
		t.Errorf("%d resources and %d out of order, want 4 and 0", n, r.disorder)
	}
	if n := r.baseline(&s, []byte(`{"set":"s","baseline":false,"after":"9-9","cursor":"9-9","changes":[]}`)); n != 1 || r.disorder != 0 {
		t.Errorf("the end counts %d, and %d are out of order", n, r.disorder)
	}
	s.told = "9-9~4"
	if r.baseline(&s, part("9-9~6", "9-9~8")); r.disorder != 1 {
		t.Error("a hole was not noticed")
	}
}

// A collection is created whole, and updates are of what it has.
func TestCollection(t *testing.T) {
	const n = collection(2500)
	locs := map[string]bool{}
	for batch := range 3 {
		for _, c := range n.created(batch, fillSize) {
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
}

func TestPeakMemory(t *testing.T) {
	idle, err := restMemory()
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < size; i += 1 << 10 {
		block[i] = 1
	}
	peak, err := peakMemory()
	if err != nil || peak < idle+size/2 || block[0] == 0 {
		t.Errorf("a peak of %v bytes above %v, %v", peak, idle, err)
	}
}
