package progress

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// A clock is what the time is.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) after(d time.Duration) { c.now = c.now.Add(d) }

func says(text string) func(time.Time) string { return func(time.Time) string { return text } }

func TestLineOnTerminal(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Unix(1, 0)}
	l := &Line{W: &out, Terminal: true, Now: c.Now}
	told := func(want string) {
		t.Helper()
		if out.String() != want {
			t.Errorf("output = %q, want %q", out.String(), want)
		}
		out.Reset()
	}
	l.Start()
	l.Update(says("1"), says("text"))
	told("\r\x1b[K1")
	c.after(redrawInterval - 1)
	l.Update(says("2"), says("text"))
	told("")
	c.after(1)
	l.Update(says("3"), says("text"))
	told("\r\x1b[K3")
	l.Note("a %s", "note")
	told("\r\x1b[Ka note\n")
	l.Update(says("4"), says("text")) // the bar appears again at once
	told("\r\x1b[K4")
	l.Clear()
	told("\r\x1b[K")
	l.Clear()
	l.Note("another")
	told("another\n")
}

func TestLineElsewhere(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Unix(1, 0)}
	l := &Line{W: &out, Now: c.Now}
	l.Start()
	for range 25 {
		c.after(time.Second)
		l.Update(says("bar"), func(now time.Time) string { return now.Sub(time.Unix(1, 0)).String() })
	}
	l.Note("note")
	l.Clear()
	if got, want := out.String(), "10s\n20s\nnote\n"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}

func TestQuietLine(t *testing.T) {
	var out bytes.Buffer
	l := &Line{W: &out, Terminal: true, Quiet: true, Now: time.Now}
	l.Start()
	l.Update(says("bar"), says("text"))
	l.Note("note")
	l.Clear()
	if out.Len() > 0 {
		t.Errorf("output = %q, want none", &out)
	}
}

// Several goroutines may use a Line; each printed line is complete.
func TestLineIsConcurrent(t *testing.T) {
	var out bytes.Buffer
	l := &Line{W: &out, Now: time.Now}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				l.Note("one line")
				l.Update(says("bar"), says("text"))
			}
		})
	}
	wg.Wait()
	if n := strings.Count(out.String(), "one line\n"); n != 400 {
		t.Errorf("got %d complete lines", n)
	}
}

func TestBar(t *testing.T) {
	for _, test := range []struct {
		done, total int
		want        string
	}{
		{0, 3, "[--------------------] "}, {1, 3, "[######--------------] "}, {3, 3, "[####################] "}, {9, 3, "[####################] "},
	} {
		if got := Bar(test.done, test.total); got != test.want {
			t.Errorf("Bar(%d, %d) = %q", test.done, test.total, got)
		}
	}
}

func TestFit(t *testing.T) {
	if got := Fit("name", "5 of 9"); got != "name  5 of 9" {
		t.Errorf("Fit() = %q", got)
	}
	long := strings.Repeat("ä", 100) + "end"
	got := Fit(long, "5 of 9")
	if utf8.RuneCountInString(got) != Columns || !strings.HasPrefix(got, "…ä") || !strings.HasSuffix(got, "ääend  5 of 9") {
		t.Errorf("Fit() = %q", got)
	}
	if got := Fit(long, strings.Repeat("x", 200)); !strings.HasPrefix(got, "…  x") {
		t.Errorf("Fit() without space for the name = %q", got)
	}
}

func TestGroup(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Group(n); got != want {
			t.Errorf("Group(%d) = %s", n, got)
		}
	}
}

func TestIsTerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if IsTerminal(file) || IsTerminal(new(bytes.Buffer)) {
		t.Error("IsTerminal of a file or a buffer = true, want false")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !IsTerminal(null) {
		t.Error("IsTerminal of a character device = false, want true")
	}
}

func TestCount(t *testing.T) {
	for _, test := range []struct {
		n    int
		one  string
		want string
	}{{0, "change", "0 changes"}, {1, "change", "1 change"}, {1500, "inventory", "1500 inventories"}, {1, "inventory", "1 inventory"}} {
		if got := Count(test.n, test.one); got != test.want {
			t.Errorf("Count() = %q, want %q", got, test.want)
		}
	}
}
