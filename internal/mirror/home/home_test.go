package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestOpenForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if h, err := Open(dir, false); !errors.Is(err, ErrForeign) {
		t.Errorf("Open() = %v, %v, want ErrForeign", h, err)
	}
	if h, err := Reopen(dir); !errors.Is(err, ErrNoMirror) {
		t.Errorf("Reopen() = %v, %v, want ErrNoMirror", h, err)
	}
	h, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.SaveSettings(Settings{URL: "a"}); err != nil {
		t.Error(err)
	}
	if err := h.SaveSettings(Settings{URL: "b"}); err == nil {
		t.Error("SaveSettings() with another URL = nil, want an error")
	}
}

// TestCopyWhileOpening checks that copies and openings of the pages do not disturb each other.
func TestCopyWhileOpening(t *testing.T) {
	dir := t.TempDir()
	h, err := Open(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for range 20 {
			_, closed, err := h.OpenPages()
			if err == nil {
				err = closed()
			}
			if err != nil {
				t.Errorf("OpenPages() = %v, want no error", err)
			}
		}
	})
	for i := range 20 {
		if err := h.CopyTo(filepath.Join(t.TempDir(), fmt.Sprint(i)), true); err != nil {
			t.Errorf("CopyTo() = %v, want no error", err)
		}
	}
}

// TestUnchanged checks that only openings for changes remove the mark.
func TestUnchanged(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		name string
		open func() (*Home, error)
		want bool
	}{
		{"created", func() (*Home, error) { return Open(dir, false) }, false},
		{"audited", func() (*Home, error) { return OpenOrCopy(t.Context(), dir, time.Second) }, true},
		{"repaired", func() (*Home, error) { return Reopen(dir) }, false},
		{"opened", func() (*Home, error) { return Open(dir, false) }, false},
	} {
		h, err := step.open()
		if err == nil {
			err = h.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := IsUnchanged(dir); got != step.want {
			t.Errorf("%s: IsUnchanged() = %t, want %t", step.name, got, step.want)
		}
		if err := MarkUnchanged(dir); err != nil {
			t.Fatal(err)
		}
	}
}
