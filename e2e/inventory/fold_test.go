package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

// A line is one change as it is published or shown: what matters of it here.
type line struct {
	Position uint64
	Loc      string
	Change   string
	Lastmod  string
	Hash     string
	Length   *int64
}

// parseLine reads a line that a test publishes.
func parseLine(text []byte) line {
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Loc == "" {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return l
}

// version is what a change says of the content, as docs/audit.md defines it. It is
// written for the tests, and shares nothing with package inventory.
func (l *line) version() string {
	if hashes := strings.Fields(strings.ToLower(l.Hash)); len(hashes) > 0 {
		for _, h := range hashes {
			if strings.HasPrefix(h, "sha-256:") {
				return h
			}
		}
		return slices.Min(hashes)
	}
	lastmod, length := "", ""
	if l.Lastmod != "" {
		at, err := time.Parse(time.RFC3339Nano, l.Lastmod)
		if err != nil {
			at, err = time.Parse("2006-01-02", l.Lastmod)
		}
		if err != nil {
			panic(err) // the hub has taken it
		}
		lastmod = at.UTC().Format("2006-01-02T15:04:05.999999999Z")
	}
	if l.Length != nil {
		length = fmt.Sprint(*l.Length)
	}
	return lastmod + ";" + length
}

// A fold is what is left of changes that were applied one after the other: each resource
// that exists, with its newest change.
type fold map[string]line

func (f fold) apply(l line) {
	if l.Change == "deleted" {
		delete(f, l.Loc)
		return
	}
	f[l.Loc] = l
}

// A look is what a hub or a fold says of all its resources.
type look struct {
	Set, Cursor       string
	Complete          bool
	Count             int
	Position, Content string // digests
}

// look returns the count and the digests of the resources whose loc has a prefix.
func (f fold) look(prefix string) look {
	mod := new(big.Int).Lsh(big.NewInt(1), 256)
	var sums [2]big.Int
	count := 0
	for loc, l := range f {
		if !strings.HasPrefix(loc, prefix) {
			continue
		}
		count++
		for i, version := range []string{fmt.Sprint(l.Position), l.version()} {
			e := sha256.Sum256([]byte(loc + "\n" + version))
			slices.Reverse(e[:]) // big.Int is big-endian
			sums[i].Add(&sums[i], new(big.Int).SetBytes(e[:]))
		}
	}
	digest := func(sum *big.Int) string {
		b := make([]byte, 32)
		sum.Mod(sum, mod).FillBytes(b)
		slices.Reverse(b)
		digits := []byte{byte(count & 127)}
		for n := count >> 7; n > 0; n >>= 7 {
			digits = append([]byte{byte(n&127) | 128}, digits...)
		}
		h := sha256.Sum256(append(b, digits...))
		return hex.EncodeToString(h[:16])
	}
	return look{Count: count, Position: digest(&sums[0]), Content: digest(&sums[1])}
}

// same checks that two folds are the same, resource by resource.
func same(t testing.TB, who string, got, want fold) {
	t.Helper()
	wrong := 0
	for _, loc := range slices.Sorted(maps.Keys(want)) {
		g, ok := got[loc]
		w := want[loc]
		if ok && g.Position == w.Position && g.version() == w.version() {
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("%s holds %s: %v, at %d, not %d", who, loc, ok, g.Position, w.Position)
		}
	}
	for loc := range got {
		if _, ok := want[loc]; !ok {
			if wrong++; wrong <= 5 {
				t.Errorf("%s holds %s, which does not exist", who, loc)
			}
		}
	}
	if wrong > 0 {
		t.Fatalf("%s: %d resources of %d are wrong", who, wrong, len(want))
	}
}

// The known values of docs/audit.md keep fold honest.
func TestFold(t *testing.T) {
	var zero [33]byte // a sum of nothing, and a count of 0
	h := sha256.Sum256(zero[:])
	if got := (fold{}).look(""); got.Position != hex.EncodeToString(h[:16]) || got.Count != 0 {
		t.Errorf("nothing looks like %+v", got)
	}
	f := fold{"urn:a": {Position: 300, Loc: "urn:a", Hash: "md5:AB sha-256:CD"}}
	e := sha256.Sum256([]byte("urn:a\nsha-256:cd"))
	h = sha256.Sum256(append(e[:], 1))
	if got := f.look(""); got.Content != hex.EncodeToString(h[:16]) || got.Count != 1 {
		t.Errorf("one resource looks like %+v", got)
	}
	for i := range 200 { // two digits of the count
		f.apply(line{Position: uint64(i), Loc: fmt.Sprint("urn:", i), Change: "created"})
	}
	if got := f.look("urn:a"); got.Count != 1 || got.Position == f.look("").Position {
		t.Errorf("a prefix looks like %+v", got)
	}
}
