package feed

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A batch is encoded only once in each format, even when several callers ask at
// the same time.
func TestIn(t *testing.T) {
	b := twoEntries()
	var formats []*Format
	var made [20]atomic.Int32
	for i := range made {
		formats = append(formats, &Format{Append: func(dst []byte, of *Batch, next string) []byte {
			if of != b || next != "" || len(dst) > 0 {
				t.Errorf("asked to append to %q, with the next page %q", dst, next)
			}
			made[i].Add(1)
			return strconv.AppendInt(dst, int64(i), 10)
		}})
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i, f := range formats {
				if got := string(b.In(f)); got != strconv.Itoa(i) {
					t.Errorf("format %d: %q", i, got)
				}
			}
		})
	}
	all.Wait()
	for i := range made {
		if n := made[i].Load(); n != 1 {
			t.Errorf("format %d was made %d times", i, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { b.In(formats[0]) }); n > 0 {
		t.Errorf("to read what is made takes %v allocations", n)
	}
}

// AppendIn appends what In returns, in every format. Of a private batch it keeps nothing.
func TestAppendIn(t *testing.T) {
	for _, f := range []*Format{JSON, XML, NDJSON} {
		for _, private := range []bool{false, true} {
			b, twin := twoEntries(), twoEntries()
			b.Private = private
			want := "before" + string(twin.In(f))
			for range 2 {
				if got := string(b.AppendIn([]byte("before"), f)); got != want {
					t.Errorf("private %t: %q, want %q", private, got, want)
				}
			}
			if kept := b.encodings.Load() != nil; kept == private {
				t.Errorf("private %t: kept %t", private, kept)
			}
			for _, part := range b.Split() {
				if part.Private != private {
					t.Errorf("private %t: a part is not", private)
				}
			}
		}
	}
}

func TestNDJSON(t *testing.T) {
	b := twoEntries()
	lines := strings.SplitAfter(string(NDJSON.Append([]byte("x\n"), b, "https://example.org/")), "\n")
	if len(lines) != 4 || lines[0] != "x\n" || lines[3] != "" {
		t.Fatalf("lines are %q", lines)
	}
	if want := `"changes":[` + strings.TrimSpace(lines[1]) + "," + strings.TrimSpace(lines[2]) + "]}"; !strings.HasSuffix(string(b.JSON()), want) {
		t.Errorf("lines are %q, JSON is %s", lines, b.JSON())
	}
	if got := NDJSON.Append(nil, &Batch{Set: "s"}, ""); len(got) > 0 {
		t.Errorf("no entries are %q", got)
	}
}

// The formats in a list differ in the name or media type by which a client chooses.
func TestFormatLists(t *testing.T) {
	for name, list := range map[string]struct {
		formats []*Format
		choice  func(*Format) string
	}{
		"messages": {Messages(), func(f *Format) string { return f.Name }},
		"pages":    {Pages(), func(f *Format) string { return f.MediaType }},
	} {
		var seen []string
		for _, f := range list.formats {
			c := list.choice(f)
			if c == "" || slices.Contains(seen, c) {
				t.Errorf("%s: %q cannot be chosen", name, c)
			}
			seen = append(seen, c)
		}
	}
}
