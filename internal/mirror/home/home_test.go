package home

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
