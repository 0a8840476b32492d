package home

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if h, err := Open(dir, false); !errors.Is(err, ErrForeign) {
		t.Errorf("Open = %v, %v", h, err)
	}
	if h, err := Reopen(dir); !errors.Is(err, ErrNoMirror) {
		t.Errorf("Reopen = %v, %v", h, err)
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
		t.Error("a mirror became one of another source")
	}
}
