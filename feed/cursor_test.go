package feed

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

func TestParseCursor(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Cursor
		ok   bool
	}{
		{"0-0", Cursor{}, true},
		{"1-2", Cursor{1, 2}, true},
		{"12345-1767323045000000", Cursor{12345, 1767323045000000}, true},
		{"9007199254740991-9007199254740991", Cursor{1<<53 - 1, 1<<53 - 1}, true},
		{"9007199254740992-1", Cursor{}, false},
		{"1-9007199254740992", Cursor{}, false},
		{"", Cursor{}, false},
		{"-", Cursor{}, false},
		{"1", Cursor{}, false},
		{"1-", Cursor{}, false},
		{"-1", Cursor{}, false},
		{"1-2-3", Cursor{}, false},
		{"1--2", Cursor{}, false},
		{"+1-2", Cursor{}, false},
		{" 1-2", Cursor{}, false},
		{"1-2 ", Cursor{}, false},
		{"0x1-2", Cursor{}, false},
		{"1_0-2", Cursor{}, false},
		{"a-b", Cursor{}, false},
		{"2026-01-02T03:04:05Z", Cursor{}, false},
		{"99999999999999999999-1", Cursor{}, false},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := ParseCursor(tt.text)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("ParseCursor(%q) = %v, %v; want %v, %t", tt.text, got, err, tt.want, tt.ok)
			}
			if err != nil && !errors.Is(err, resourcesync.ErrInvalid) {
				t.Errorf("ParseCursor(%q): got error %v, want %v", tt.text, err, resourcesync.ErrInvalid)
			}
		})
	}
	if _, err := ParseCursor(strings.Repeat("x", 10_000)); len(err.Error()) > 300 {
		t.Errorf("ParseCursor of a long text: got an error of %d bytes, want at most 300", len(err.Error()))
	}
}

func TestCursor(t *testing.T) {
	c := Cursor{7, 1767323045000001}
	if got := c.String(); got != "7-1767323045000001" {
		t.Errorf("String() = %q, want %q", got, "7-1767323045000001")
	}
	if got := string(c.Append([]byte("x "))); got != "x 7-1767323045000001" {
		t.Errorf("Append() = %q, want %q", got, "x 7-1767323045000001")
	}
	if want := time.Date(2026, 1, 2, 3, 4, 5, 1000, time.UTC); c.Time() != want {
		t.Errorf("Time() = %v, want %v", c.Time(), want)
	}
	if c.IsZero() || (Cursor{Micros: 1}).IsZero() || !(Cursor{}).IsZero() {
		t.Error("IsZero() is wrong for one of the zero cursor, 0-1 and 7-1767323045000001")
	}
}

func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"0-0", "1-2", "01-2", "9007199254740991-9007199254740991", "1-2-3", "-", "2026-01-02"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err != nil {
			if c != (Cursor{}) || !errors.Is(err, resourcesync.ErrInvalid) {
				t.Errorf("ParseCursor(%q) = %v, %v, want the zero cursor and ErrInvalid", s, c, err)
			}
			return
		}
		if c.Position > MaxNumber || c.Micros < 0 || c.Micros > MaxNumber {
			t.Errorf("ParseCursor(%q) = %v, want numbers from 0 to MaxNumber", s, c)
		}
		if again, err := ParseCursor(c.String()); again != c || err != nil {
			t.Errorf("ParseCursor(%q) = %v, %v; want %v", c, again, err, c)
		}
	})
}
