package trail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// A bench is an audit log in fake time.
type bench struct {
	*testing.T
	*Log
	path string
	said testutil.Log
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, path: filepath.Join(t.TempDir(), "audit.jsonl")}
	var err error
	if b.Log, err = Open(b.path, b.said.Logger(slog.LevelInfo)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) pass(d time.Duration) {
	time.Sleep(d) // in fake time
	synctest.Wait()
}

// lines returns the lines of a file. Every line must be JSON.
func lines(t testing.TB, path string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(text)) {
		var l map[string]any
		if err := json.Unmarshal([]byte(text), &l); err != nil || !strings.HasSuffix(text, "\n") {
			t.Errorf("line %q: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

func published(set string) *Record {
	return &Record{RequestID: "id", Caller: "alice", Client: netip.MustParseAddr("192.0.2.1"), Action: Publish, Set: set, Changes: 3, Cursor: feed.Cursor{Position: 7}}
}

func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Add(published("demo"), http.StatusOK)
		b.Add(&Record{}, http.StatusOK)       // reads
		b.Add(&Record{}, http.StatusNotFound) // does nothing
		b.pass(writeInterval)
		text, err := os.ReadFile(b.path)
		want := `{"time":"` + time.Now().Add(-writeInterval).UTC().Format("2006-01-02T15:04:05.000000Z") + `","requestId":"id","caller":"alice","client":"192.0.2.1","action":"publish","set":"demo","changes":3,"cursor":"7-0","status":200,"outcome":"done"}` + "\n"
		if err != nil || string(text) != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
		if info, _ := os.Stat(b.path); info.Mode().Perm() != 0o600 {
			t.Errorf("got file mode %v", info.Mode())
		}
		b.Add(published("late"), http.StatusServiceUnavailable)
		b.Add(published("aborted"), 0)
		b.Close()
		if all := lines(t, b.path); len(all) != 3 || all[1]["outcome"] != "failed" || all[2]["outcome"] != "failed" || b.Lines() != 3 {
			t.Errorf("got lines %v, Lines() = %d", all, b.Lines())
		}
		b.Add(published("too late"), http.StatusOK)
		if b.Lost() != 1 {
			t.Errorf("Lost() = %d, want 0", b.Lost())
		}
	})
}

// A file that is renamed or removed is created again, and earlier lines are in the old one.
func TestReplacedFileIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.Close()
		b.Add(published("a"), http.StatusOK)
		if err := os.Rename(b.path, b.path+".1"); err != nil {
			t.Fatal(err)
		}
		b.Reopen()
		synctest.Wait()
		b.Add(published("b"), http.StatusOK)
		b.pass(writeInterval)
		if old, now := lines(t, b.path+".1"), lines(t, b.path); len(old) != 1 || len(now) != 1 || now[0]["set"] != "b" {
			t.Errorf("after Reopen: old file %v, new file %v", old, now)
		}
		if err := os.Remove(b.path); err != nil {
			t.Fatal(err)
		}
		b.pass(checkInterval)
		b.Add(published("c"), http.StatusOK)
		b.pass(writeInterval)
		if now := lines(t, b.path); len(now) != 1 || now[0]["set"] != "c" {
			t.Errorf("after removal of the file: %v", now)
		}
		if b.Lost() != 0 || b.Err() != nil {
			t.Errorf("Lost() = %d, Err() = %v", b.Lost(), b.Err())
		}
	})
}

// While no file can be created at the path, Err returns an error, which is logged once.
func TestUnopenableFileIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.Close()
		dir := filepath.Dir(b.path)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		b.pass(checkInterval)
		for range 20 {
			b.Add(published("a"), http.StatusOK) // to the file as it was
			if b.pass(writeInterval); b.Err() == nil {
				t.Fatal("Err() = nil, want error")
			}
		}
		if n := len(b.said.Lines(t, "writing the audit log failed; lines are lost")); n != 1 {
			t.Errorf("failure logged %d times: %s", n, &b.said)
		}
		if old := lines(t, filepath.Join(dir+".old", filepath.Base(b.path))); len(old) != 20 || b.Lost() != 0 {
			t.Errorf("old file has %d lines, Lost() = %d", len(old), b.Lost())
		}
		if err := os.Rename(dir+".old", dir); err != nil {
			t.Fatal(err)
		}
		if b.pass(checkInterval + writeInterval); b.Err() != nil {
			t.Errorf("Err() = %v, want nil", b.Err())
		}
	})
}

// An incomplete line of a killed hub does not damage the following lines.
func TestIncompleteLineIsTerminated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"time":"2026`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Add(published("a"), http.StatusOK)
	l.Close()
	text, _ := os.ReadFile(path)
	if all := strings.Split(string(text), "\n"); len(all) != 3 || !strings.HasPrefix(all[1], `{"time":"`) || all[2] != "" {
		t.Errorf("got %q", text)
	}
}

// A fullFile is a file that accepts some bytes and then fails, like a full disk.
type fullFile struct {
	io.Writer
	room int
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.room >= len(p) {
		return f.Writer.Write(p)
	}
	n, _ := f.Writer.Write(p[:f.room])
	f.room = 0
	return n, errors.New("no space left")
}

// Lines that cannot be written are counted, and their number is written when writing succeeds
// again.
func TestFailedWritesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		full := &fullFile{b.file, 250} // one line and a half
		b.out = full
		for i := range 5 {
			b.Add(published(fmt.Sprint(i)), http.StatusOK)
		}
		b.pass(writeInterval)
		if b.Err() == nil || b.Lost() != 4 || b.Lines() != 1 {
			t.Errorf("Lines() = %d, Lost() = %d, Err() = %v", b.Lines(), b.Lost(), b.Err())
		}
		b.Add(published("5"), http.StatusOK)
		b.pass(writeInterval)
		if b.Lost() != 5 || len(b.said.Lines(t, "writing the audit log failed; lines are lost")) != 1 {
			t.Errorf("Lost() = %d; log: %s", b.Lost(), &b.said)
		}
		full.room = 1 << 20
		b.Add(published("6"), http.StatusOK)
		b.pass(writeInterval)
		b.Close()
		text, _ := os.ReadFile(b.path)
		all := strings.Split(string(text), "\n")
		if len(all) != 5 || !strings.Contains(all[2], `"set":"6"`) || !strings.Contains(all[3], `"action":"lost","outcome":"lost","count":5`) || b.Err() != nil {
			t.Errorf("got %s, Err() = %v", text, b.Err())
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range maxQueue + 10 {
			b.Add(published("a"), http.StatusOK)
		}
		b.Close()
		all := lines(t, b.path)
		if last := all[len(all)-1]; len(all) != maxQueue+1 || last["action"] != "lost" || last["count"] != 10.0 || b.Lost() != 10 {
			t.Errorf("got %d lines, last %v, Lost() = %d", len(all), last, b.Lost())
		}
	})
}

// Refused requests at a high rate have a bounded number of lines, which count all of them.
func TestFloodLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const n = 50_000
		for i := range n {
			from := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
			if i%2 == 0 {
				from = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))
			}
			b.Add(&Record{Client: from, Method: "GET", Path: "/sets"}, http.StatusUnauthorized)
		}
		b.pass(checkInterval)
		b.Add(published("a"), http.StatusOK)
		b.Close()
		all, sum, publishes := lines(t, b.path), 0.0, 0
		for _, l := range all {
			if l["action"] == "publish" {
				publishes++
				continue
			}
			count, ok := l["count"].(float64)
			if !ok {
				count = 1
			}
			if sum += count; l["outcome"] != "refused" || l["status"] != 401.0 {
				t.Errorf("got line %v", l)
			}
		}
		if sum != n || publishes != 1 || len(all) > 2*(maxSingle+maxFloods+1) {
			t.Errorf("got %d lines that count %v, and %d publishes", len(all), sum, publishes)
		}
	})
}

func TestOpenFails(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none", "audit"), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "open audit log") {
		t.Error(err)
	}
}

// A line is a line of the audit log with every possible member, as its readers know it. It is not
// entry, so that FuzzLine detects renamed or reordered members.
type line struct {
	Time      string `json:"time"`
	RequestID string `json:"requestId,omitempty"`
	Caller    string `json:"caller,omitempty"`
	Client    string `json:"client,omitempty"`

	Action       Action `json:"action"`
	Set          string `json:"set,omitempty"`
	Changes      uint64 `json:"changes,omitempty"`
	Cursor       string `json:"cursor,omitempty"`
	Replayed     bool   `json:"replayed,omitempty"`
	Subscription string `json:"subscription,omitempty"`
	Callback     string `json:"callback,omitempty"`

	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Status  int    `json:"status,omitempty"`
	Outcome string `json:"outcome"`
	Count   uint64 `json:"count,omitempty"`
}

// Whatever a client sends, its line is one line of JSON with the known members in their order, and
// contains nothing that a terminal would interpret.
func FuzzLine(f *testing.F) {
	f.Add("alice", "/sets/\n{\"action\":\"publish\"}", "host")
	f.Add("\x1b[2J\u202e\u0085", "\xff\x7f", "\u2028")
	f.Add("a<b>&\"c\\", strings.Repeat("é", 200), "")
	f.Fuzz(func(t *testing.T, caller, path, host string) {
		r := &Record{Caller: caller, Path: path, Callback: host, status: http.StatusForbidden, Replayed: caller > path, Changes: uint64(len(path)), count: uint64(len(caller))}
		if len(host)%2 == 0 {
			r.Action, r.Set, r.Cursor = Move, host, feed.Cursor{Position: uint64(len(path)), Micros: 7}
		}
		text := string(r.append(nil))
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Outcome != "refused" {
			t.Errorf("line %q: %v", text, err)
		}
		if again, _ := json.Marshal(&l); utf8.ValidString(caller+" "+path+" "+host) && string(again)+"\n" != text {
			t.Errorf("line %q, but encoding/json writes %q", text, again)
		}
		if strings.Count(text, "\n") != 1 || strings.ContainsFunc(strings.TrimSuffix(text, "\n"), func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 || c == 0x202e || c == 0x2028 }) {
			t.Errorf("line %q", text)
		}
	})
}
