package compressed_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/feed/compressed"
	"github.com/rshub/rshub/resourcesync"
)

// batch returns a batch of n changes with hashes that nobody can guess.
func batch(n int) *feed.Batch {
	random := rand.NewChaCha8([32]byte{byte(n)})
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		var hash [32]byte
		_, _ = random.Read(hash[:])
		changes[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/articles/%d.pdf", i), Change: resourcesync.Updated, Hash: "sha-256:" + hex.EncodeToString(hash[:]), Type: "application/pdf"}
	}
	return feed.NewBatch("articles", feed.Cursor{Position: 7, Micros: 1e15}, feed.Cursor{Position: 7 + uint64(n), Micros: 1e15 + 1e6}, changes)
}

// A message is what the plain format says, in every form and for every length.
func TestMessages(t *testing.T) {
	for _, n := range []int{0, 1, 2, 20, 40, 100, 2_000} {
		b := batch(n)
		plain := b.JSON()
		for _, f := range compressed.Messages() {
			message := b.In(f)
			text, err := compressed.Open([]byte("before:"), message)
			if err != nil || string(text) != "before:"+string(plain) {
				t.Errorf("%s of %d changes: %v, %.100q", f.Name, n, err, text)
			}
		}
		if alone, err := newDecoder(t).DecodeAll(b.In(compressed.JSON), nil); err != nil || !bytes.Equal(alone, plain) {
			t.Errorf("%d changes need the dictionary: %v", n, err)
		}
		if n == 100 && len(b.In(compressed.JSON)) > len(plain)/4 {
			t.Errorf("100 changes take %d bytes of %d", len(b.In(compressed.JSON)), len(plain))
		}
		if short := b.In(compressed.ShortJSON()); n == 1 && len(short) > len(b.In(compressed.JSON))*4/5 {
			t.Errorf("the dictionary saves little: %d bytes instead of %d", len(short), len(b.In(compressed.JSON)))
		}
	}
}

func newDecoder(t *testing.T, o ...zstd.DOption) *zstd.Decoder {
	d, err := zstd.NewReader(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// The tool zstd reads messages with the dictionary, as other libraries do.
func TestTool(t *testing.T) {
	program, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("there is no zstd")
	}
	for _, n := range []int{1, 100} {
		b := batch(n)
		for _, message := range [][]byte{b.In(compressed.ShortJSON()), append(compressed.Head(compressed.DCZ), b.In(compressed.ShortJSON())...)} {
			cmd := exec.CommandContext(t.Context(), program, "-dc", "-D", "dictionary.txt")
			cmd.Stdin = bytes.NewReader(message)
			if text, err := cmd.Output(); err != nil || !bytes.Equal(text, b.JSON()) {
				t.Errorf("%d changes: %v, %.100q", n, err, text)
			}
		}
	}
}

// A message that unpacks to more than it may is refused before it takes the memory.
func TestBomb(t *testing.T) {
	zeros := bytes.Repeat([]byte{0}, compressed.MaxMessage+1)
	var said, unsaid bytes.Buffer // whether the frame says how long its text is
	said.Write(compressed.Append(nil, zeros))
	w := compressed.NewWriter(&unsaid, false)
	if _, err := w.Write(zeros); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	zeros = nil
	for name, bomb := range map[string][]byte{"said": said.Bytes(), "unsaid": unsaid.Bytes(), "many": bytes.Repeat(compressed.Append(nil, make([]byte, 1<<10)), compressed.MaxMessage>>10+1)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text, err := compressed.Open(nil, bomb)
		runtime.ReadMemStats(&after)
		if err == nil || len(text) > 0 {
			t.Errorf("%s: %d bytes became %d", name, len(bomb), len(text))
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: %d bytes took %d bytes of memory", name, len(bomb), took)
		}
	}
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0} // a window of 128 MiB
	r, err := compressed.NewReader(bytes.NewReader(frame), compressed.Zstd)
	if err == nil {
		_, err = io.ReadAll(r)
	}
	if err == nil {
		t.Error("a window of 128 MiB was accepted")
	}
}

// A body is the same in every coding, and one that is cut off is an error.
func TestReader(t *testing.T) {
	text := batch(500).JSON()
	for _, coding := range []string{"", "identity", compressed.Zstd, compressed.DCZ} {
		body := bytes.Clone(text)
		if coding == compressed.Zstd || coding == compressed.DCZ {
			out := bytes.NewBuffer(compressed.Head(coding))
			w := compressed.NewWriter(out, coding == compressed.DCZ)
			for part := text; len(part) > 0; part = part[min(len(part), 777):] {
				if _, err := w.Write(part[:min(len(part), 777)]); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			body = out.Bytes()
		}
		for _, n := range []int{len(body), len(body) - 1, len(body) / 2, 41, 39, 8, 1} {
			r, err := compressed.NewReader(bytes.NewReader(body[:n]), coding)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r)
				_ = r.Close()
			}
			packed := coding == compressed.Zstd || coding == compressed.DCZ
			if whole := n == len(body); whole && (err != nil || !bytes.Equal(got, text)) || !whole && packed && err == nil {
				t.Errorf("%d bytes of %d in %q: %v, %d bytes", n, len(body), coding, err, len(got))
			}
		}
	}
	if _, err := compressed.NewReader(strings.NewReader(""), "br"); err == nil {
		t.Error("a coding that nobody asked for was accepted")
	}
	other := compressed.Head(compressed.DCZ)
	other[20]++
	if _, err := compressed.NewReader(bytes.NewReader(other), compressed.DCZ); err == nil || !strings.Contains(err.Error(), compressed.Name()) {
		t.Errorf("another dictionary: %v", err)
	}
}

// A stream that was dropped is no whole one.
func TestDrop(t *testing.T) {
	var out bytes.Buffer
	w := compressed.NewWriter(&out, false)
	if _, err := w.Write(batch(2_000).JSON()); err != nil {
		t.Fatal(err)
	}
	w.Drop()
	r, err := compressed.NewReader(&out, compressed.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err == nil {
		t.Errorf("%d bytes count as the whole", len(got))
	}
}

// The documentation names the dictionary that there is.
func TestName(t *testing.T) {
	page, err := os.ReadFile("../../docs/compressed.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/dictionaries/" + compressed.Name() + "`", "`" + compressed.ShortJSON().Name + "`"} {
		if !bytes.Contains(page, []byte(name)) {
			t.Errorf("docs/compressed.md does not name %s", name)
		}
	}
}

func TestHasDictionary(t *testing.T) {
	own := compressed.Available()
	for _, test := range []struct {
		value string
		want  bool
	}{
		{own, true}, {" " + own + " ", true}, {own + ";a=1", true}, {own + " ; a", true}, {strings.Replace(own, "=", "", 1), true},
		{"", false}, {":", false}, {"::", false}, {own[1:], false}, {own[:len(own)-1], false}, {own + ", " + own, false}, {own + "x", false},
		{strings.ToLower(own), false}, {":" + strings.Repeat("A", 43) + "=:", false}, {strings.Trim(own, ":"), false},
	} {
		if got := compressed.HasDictionary(test.value); got != test.want {
			t.Errorf("%q: %v", test.value, got)
		}
	}
}

// FuzzHasDictionary holds that no header but the one of the dictionary names it.
func FuzzHasDictionary(f *testing.F) {
	for _, seed := range []string{compressed.Available(), "::", ":AAAA:", ":====:;x", compressed.Available() + ";q=:1:"} {
		f.Add(seed)
	}
	digest := strings.TrimRight(strings.Trim(compressed.Available(), ":"), "=")
	f.Fuzz(func(t *testing.T, value string) {
		if compressed.HasDictionary(value) && !strings.Contains(strings.NewReplacer("\r", "", "\n", "").Replace(value), digest[:42]) {
			t.Errorf("%q names the dictionary", value)
		}
	})
}

// FuzzOpen holds that no message makes Open panic, or longer than it may be, and that a
// body reads the same.
func FuzzOpen(f *testing.F) {
	for _, n := range []int{0, 1, 30} {
		f.Add(batch(n).In(compressed.JSON))
		f.Add(batch(n).In(compressed.ShortJSON()))
		f.Add(append(compressed.Head(compressed.DCZ), batch(n).In(compressed.ShortJSON())...))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		text, err := compressed.Open(nil, message)
		if len(text) > compressed.MaxMessage {
			t.Errorf("%d bytes", len(text))
		}
		for _, coding := range []string{compressed.Zstd, compressed.DCZ} {
			r, rerr := compressed.NewReader(bytes.NewReader(message), coding)
			if rerr != nil {
				continue
			}
			got, rerr := io.ReadAll(io.LimitReader(r, 1<<20))
			_ = r.Close()
			if err == nil && len(text) < 1<<20 && coding == compressed.Zstd && (rerr != nil || !bytes.Equal(got, text)) {
				t.Errorf("a body is %q, %v, and a message %q", got, rerr, text)
			}
		}
	})
}

// Any text comes back, also one that is nothing like a message.
func TestRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	own := compressed.Dictionary()
	for i := range 200 {
		text := make([]byte, random.IntN(12<<10))
		for j := 0; j < len(text); { // noise, the dictionary, and what came before
			switch n := min(1+random.IntN(200), len(text)-j); random.IntN(3) {
			case 0:
				for k := range n {
					text[j+k] = byte(random.Uint32())
				}
				j += n
			case 1:
				j += copy(text[j:j+n], own[random.IntN(len(own)):])
			default:
				j += copy(text[j:j+n], text[random.IntN(j+1):j+1])
			}
		}
		for _, message := range [][]byte{compressed.Append(nil, text), compressed.AppendWithDictionary(nil, text)} {
			if got, err := compressed.Open(nil, message); err != nil || !bytes.Equal(got, text) {
				t.Fatalf("text %d of %d bytes comes back as %d, %v", i, len(text), len(got), err)
			}
		}
	}
}

// The bytes of a stream do not depend on how it was written, or on what was compressed
// before: two hubs give the same document.
func TestWriterCuts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := [][]byte{nil, []byte("{}"), batch(1).JSON(), batch(3_000).JSON(), bytes.Repeat([]byte("abcdefgh"), 40_000)}
	want := map[string][]byte{}
	for range 20 {
		for i, text := range texts {
			for _, dictionary := range []bool{false, true} {
				var out bytes.Buffer
				w := compressed.NewWriter(&out, dictionary)
				for rest := text; len(rest) > 0; {
					n := 1 + random.IntN(len(rest))
					_, _ = w.Write(rest[:n])
					rest = rest[n:]
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				key := fmt.Sprint(i, dictionary)
				if want[key] == nil {
					want[key] = out.Bytes()
				}
				if !bytes.Equal(out.Bytes(), want[key]) {
					t.Fatalf("%d bytes are %d compressed, and were %d", len(text), out.Len(), len(want[key]))
				}
			}
		}
	}
}
