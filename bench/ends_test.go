//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The parts of both ends, with all programs.
func TestEnds(t *testing.T) {
	b := small(t)
	b.ops, b.program = "127.0.0.1:0", filepath.Join(t.TempDir(), "rshub")
	b.files, b.contents, b.listed, b.sizes.quiet = 150, 120, 50, 100*time.Millisecond
	for program, name := range map[string]string{b.program: "rshub", b.work + "/rspublish": "rspublish", b.work + "/rsmirror": "rsmirror"} {
		if err := build(b.ctx, program, name); err != nil {
			t.Fatal(err)
		}
	}
	b.self = filepath.Join(t.TempDir(), "bench")
	if err := buildPackage(b.ctx, b.self, "github.com/rshub/rshub/bench"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		run  func(*table) error
		rows int
	}{
		{b.sync, 2}, {b.relay, 6}, {b.mirror, 2}, {b.dumps, 6}, {b.quietEnds, 4},
	} {
		var tab table
		if err := part.run(&tab); err != nil {
			t.Error(err)
		}
		if len(tab.rows) != part.rows {
			t.Errorf("%d rows, want %d", len(tab.rows), part.rows)
		}
		for _, r := range tab.rows {
			if some := !strings.Contains(r.Figure, "CPU") && !strings.Contains(r.Figure, "core") && !strings.Contains(r.Figure, "MB"); some && !(r.Floor[0] > 0 && r.Rshub[0] > 0) {
				t.Errorf("%s, %s: %v and %v", r.Case, r.Figure, r.Floor, r.Rshub)
			}
		}
	}
}

// A summary that is not what was to be done fails the run.
func TestCounted(t *testing.T) {
	r := &runOf{out: []byte(`{"set":"bench","listed":7,"created":2,"updated":0,"deleted":0}`)}
	if err := r.counted(7, 2); err != nil {
		t.Error(err)
	}
	if r.counted(7, 0) == nil || r.counted(8, 2) == nil {
		t.Error("a wrong number was not noticed")
	}
}
