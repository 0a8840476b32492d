package feed

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEncode checks that a batch is encoded only once in each format, even by concurrent callers.
func TestEncode(t *testing.T) {
	b := twoEntries()
	var formats []*Format
	var calls [20]atomic.Int32
	for i := range calls {
		formats = append(formats, &Format{Append: func(dst []byte, of *Batch, next string) []byte {
			if of != b || next != "" || len(dst) > 0 {
				t.Errorf("Append is called with dst %q and next %q, want both empty", dst, next)
			}
			calls[i].Add(1)
			return strconv.AppendInt(dst, int64(i), 10)
		}})
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, f := range formats {
				if got := string(b.Encode(f)); got != strconv.Itoa(i) {
					t.Errorf("Encode(format %d) = %q", i, got)
				}
			}
		})
	}
	wg.Wait()
	for i := range calls {
		if n := calls[i].Load(); n != 1 {
			t.Errorf("format %d was encoded %d times, want once", i, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { b.Encode(formats[0]) }); n > 0 {
		t.Errorf("Encode of a cached encoding makes %v allocations, want 0", n)
	}
}

func TestNDJSON(t *testing.T) {
	b := twoEntries()
	lines := strings.SplitAfter(string(NDJSON.Append([]byte("x\n"), b, "https://example.org/")), "\n")
	if len(lines) != 4 || lines[0] != "x\n" || lines[3] != "" {
		t.Fatalf("NDJSON.Append() has the lines %q, want two after the prefix", lines)
	}
	if want := `"changes":[` + strings.TrimSpace(lines[1]) + "," + strings.TrimSpace(lines[2]) + "]}"; !strings.HasSuffix(string(b.JSON()), want) {
		t.Errorf("NDJSON.Append() has the lines %q, want the entries of %s", lines, b.JSON())
	}
	if got := NDJSON.Append(nil, &Batch{Set: "s"}, ""); len(got) > 0 {
		t.Errorf("NDJSON.Append() of a batch without entries = %q, want nothing", got)
	}
}

// TestFormatLists checks that the formats of a list differ in the name or media type by which
// clients select them.
func TestFormatLists(t *testing.T) {
	for name, list := range map[string]struct {
		formats []*Format
		choice  func(*Format) string
	}{
		"messages": {MessageFormats(), func(f *Format) string { return f.Name }},
		"pages":    {PageFormats(), func(f *Format) string { return f.MediaType }},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			for _, f := range list.formats {
				c := list.choice(f)
				if c == "" || slices.Contains(seen, c) {
					t.Errorf("%q is empty or not unique", c)
				}
				seen = append(seen, c)
			}
		})
	}
}
