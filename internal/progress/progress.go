// Package progress shows the progress of a program: on a terminal it overwrites one line, elsewhere
// it prints a line from time to time.
//
// The caller counts. Package progress only decides when to print.
package progress

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	redrawInterval = 100 * time.Millisecond // minimum time between two reports on a terminal
	reportInterval = 10 * time.Second       // minimum time between two reports elsewhere

	Columns  = 79 // maximum width of a line on a terminal
	barWidth = 20
)

// A Line reports progress. It is safe for concurrent use.
type Line struct {
	W        io.Writer
	Terminal bool // whether W is a terminal
	Quiet    bool // disables all reports
	Now      func() time.Time

	mu         sync.Mutex
	lastReport time.Time
	drawn      bool // whether the line is on the terminal
}

// Start starts the reports: on a terminal immediately, elsewhere after reportInterval.
func (l *Line) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Terminal {
		l.lastReport = l.Now()
	}
}

// Update reports progress if a report is due. bar returns the text for a terminal, which should
// have at most Columns characters. text returns the line for other outputs.
func (l *Line) Update(bar, text func(now time.Time) string) {
	if l.Quiet {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Now()
	switch since := now.Sub(l.lastReport); {
	case l.Terminal && since >= redrawInterval:
		l.lastReport, l.drawn = now, true
		fmt.Fprintf(l.W, "\r\x1b[K%s", bar(now))
	case !l.Terminal && since >= reportInterval:
		l.lastReport = now
		fmt.Fprintf(l.W, "%s\n", text(now))
	}
}

// Note prints a separate line, and removes the bar before it.
func (l *Line) Note(format string, args ...any) {
	if !l.Quiet {
		l.Error(format, args...)
	}
}

// Error is like Note, but prints even if Quiet is set.
func (l *Line) Error(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
	fmt.Fprintf(l.W, format+"\n", args...)
}

// Clear removes the bar from the terminal.
func (l *Line) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
}

func (l *Line) clearLocked() {
	if l.drawn {
		fmt.Fprint(l.W, "\r\x1b[K")
		l.drawn = false
		l.lastReport = time.Time{}
	}
}

// Bar returns a bar for done of total, such as "[##########----------] ".
func Bar(done, total int) string {
	full := barWidth * min(done, total) / total
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] "
}

// Fit returns name and figures on one line of a terminal. It truncates the start of the name if
// necessary.
func Fit(name, figures string) string {
	runes := []rune(name)
	if room := Columns - utf8.RuneCountInString(figures) - 2; len(runes) > room {
		runes = append([]rune{'…'}, runes[len(runes)-max(room-1, 0):]...)
	}
	return string(runes) + "  " + figures
}

// Group formats n with commas as thousands separators.
func Group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count returns n with a noun: "1 change", "2 changes". Scripts can parse it.
func Count[N int | int64 | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if before, ok := strings.CutSuffix(one, "y"); ok {
		one = before + "ie"
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// IsTerminal treats every character device as a terminal. So no terminal library is needed, and a
// bar that is written to /dev/null is harmless.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
