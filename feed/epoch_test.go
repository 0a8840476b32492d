package feed

import (
	"errors"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestEpochs(t *testing.T) {
	var e Epochs
	if name := e.Of(7); name != "" {
		t.Errorf("without epochs, a list is of epoch %q", name)
	}
	for _, test := range []struct {
		name         string
		from, oldest uint64
		want         Epochs
	}{
		{"a", 3, 1, "3-a"},
		{"b", 5, 1, "3-a 5-b"},
		{"c", 5, 1, "3-a 5-c"}, // no list was closed in b
		{"d", 9, 1, "3-a 5-c 9-d"},
		{"e", 4, 1, "3-a 4-e"}, // a long tail was lost
		{"f", 9, 4, "4-e 9-f"}, // retention removed the last list of a
		{"g", 12, 11, "9-f 12-g"},
		{"h", 12, 12, "12-h"},
		{"i", 2, 1, "2-i"},
	} {
		if e = e.Begin(test.name, test.from, test.oldest); e != test.want {
			t.Fatalf("after %s the epochs are %q, want %q", test.name, e, test.want)
		}
	}
	parsed, err := ParseEpochs("3-a 5-c 9-d2")
	if err != nil {
		t.Fatal(err)
	}
	for list, want := range map[uint64]string{1: "", 2: "", 3: "a", 4: "a", 5: "c", 8: "c", 9: "d2", 1 << 60: "d2"} {
		if name := parsed.Of(list); name != want {
			t.Errorf("list %d is of epoch %q, want %q", list, name, want)
		}
	}
	for _, bad := range []string{"3", "a-b", "3-", "-a", "3-a 3-b", "5-a 3-b", "3-A", "3-a-b", "0-a", "3-a/b"} {
		if _, err := ParseEpochs(bad); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("ParseEpochs(%q) = %v", bad, err)
		}
	}
}
