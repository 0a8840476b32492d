package feed

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// encode returns the page in the format JSON.
func (b *BaselinePage) encode(next string) []byte {
	w := JSON.Baseline()
	dst := w.Head(nil, &b.BaselinePart, next)
	for i := range b.Entries {
		dst = w.Entry(dst, &b.Entries[i], i == 0)
	}
	return w.Tail(dst, &b.BaselinePart, next)
}

func examplePages() []*BaselinePage {
	at := Cursor{9, 9_000_009}
	lastmod := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	length := int64(7)
	return []*BaselinePage{
		{BaselinePart: BaselinePart{Set: "demo", After: BaselineCursor{at, 3, 7}, Next: BaselineCursor{at, 5, 7}, Complete: true, Count: 9, Restart: true}, Entries: []Entry{
			{Cursor: Cursor{4, 9_000_004}, Change: resourcesync.Change{Loc: "urn:a", Change: resourcesync.Updated, Datetime: lastmod, Lastmod: lastmod, Hash: "md5:00", Length: &length}},
			{Cursor: at, Change: resourcesync.Change{Loc: "urn:b", Change: resourcesync.Created}},
		}},
		{BaselinePart: BaselinePart{Set: "demo", After: BaselineCursor{at, 5, 7}, Next: BaselineCursor{at, 5, 7}, Count: 5}},
		{BaselinePart: BaselinePart{Set: "demo", Next: BaselineCursor{Cursor: at}, Complete: true, Count: 9, End: true, PositionDigest: "12", ContentDigest: "34"}},
		{BaselinePart: BaselinePart{Set: "demo", After: BaselineCursor{at, 3, 7}, Next: BaselineCursor{at, 50, 7}, Uncounted: true}, Entries: []Entry{
			{Cursor: at, Change: resourcesync.Change{Loc: "urn:b", Change: resourcesync.Created}},
		}},
		{BaselinePart: BaselinePart{Set: "demo", After: BaselineCursor{at, 50, 7}, Next: BaselineCursor{Cursor: at}, End: true, Uncounted: true}},
	}
}

// TestReadBaseline checks that ReadBaseline decodes what the format JSON encodes.
func TestReadBaseline(t *testing.T) {
	for _, want := range examplePages() {
		for _, next := range []string{"", "https://hub.example.org/sets/demo/changes?since=9-9~5"} {
			got, at, err := ReadBaseline(bytes.NewReader(want.encode(next)), resourcesync.Limits{})
			if err != nil || at != next || !reflect.DeepEqual(got, want) {
				t.Errorf("ReadBaseline() =\n%+v, %q, %v, want\n%+v", got, at, err, want)
			}
		}
	}
}

// TestReadBaselineInvalid checks that a page that contradicts itself is rejected.
func TestReadBaselineInvalid(t *testing.T) {
	good := string(examplePages()[0].encode(""))
	end := string(examplePages()[2].encode(""))
	uncounted := string(examplePages()[3].encode(""))
	for _, tt := range []struct{ name, text, old, new, want string }{
		{"no baseline", good, `"baseline":true,`, ``, `"baseline" is missing`},
		{"end without changes", good, `"baseline":true`, `"baseline":false`, `"changes" is missing`},
		{"part without resources", end, `"baseline":false`, `"baseline":true`, `"resources" is missing`},
		{"baseline not a boolean", good, `"baseline":true`, `"baseline":1`, `baseline: got a number, want a boolean`},
		{"no set", good, `"set":"demo",`, ``, `invalid set name ""`},
		{"invalid set", good, `"set":"demo"`, `"set":"/"`, `invalid set name`},
		{"changes in a part", good, `"resources":[`, `"changes":[`, `got changes at the end`},
		{"negative count", good, `"count":9`, `"count":-1`, `count: got -1, want a whole number`},
		{"after not a baseline cursor", good, `~3~7"`, `"`, `invalid baseline cursor`},
		{"too few resources", good, `~5~7"`, `~6~7"`, `does not match after`},
		{"another cursor", good, `"9-9000009~5~7"`, `"8-9000009~5~7"`, `does not match after`},
		{"another root", good, `~5~7"`, `~5~8"`, `does not match after`},
		{"duplicate loc", good, `urn:b`, `urn:a`, `in the order of loc`},
		{"deleted resource", good, `"change":"created"`, `"change":"deleted"`, `deleted resource`},
		{"newer than baseline", good, `"position":9`, `"position":10`, `newer than the baseline`},
		{"no position", good, `"position":4,`, ``, `position or datetime is missing`},
		{"too many resources", uncounted, `~50~7"`, `~3~7"`, `does not match after`},
		{"changes and resources", end, `"changes":[]`, `"changes":[],"resources":[]`, `got both`},
		{"end with rank", end, `"cursor":"9-9000009"`, `"cursor":"9-9000009~9"`, `invalid cursor`},
		{"changes at the end", end, `"changes":[]`, `"changes":[{"loc":"urn:a"}]`, `got changes at the end`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(tt.text, tt.old, tt.new, 1)
			if text == tt.text {
				t.Fatalf("%s is not in %s", tt.old, tt.text)
			}
			_, _, err := ReadBaseline(strings.NewReader(text), resourcesync.Limits{})
			if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ReadBaseline(%s): got error %v, want %s", text, err, tt.want)
			}
		})
	}
}

// FuzzReadBaseline checks that a decoded page can be encoded, and is equal when it is decoded
// again.
func FuzzReadBaseline(f *testing.F) {
	for _, page := range examplePages() {
		f.Add(page.encode(""))
		f.Add(page.encode("https://hub.example.org/"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		page, next, err := ReadBaseline(bytes.NewReader(text), resourcesync.Limits{Entries: 100})
		if err != nil {
			return
		}
		again, at, err := ReadBaseline(bytes.NewReader(page.encode(next)), resourcesync.Limits{Entries: 100})
		if page.End { // its digests are encoded without escaping
			return
		}
		if err != nil || at != next || !reflect.DeepEqual(again, page) {
			t.Errorf("ReadBaseline(%s) = %+v, decoded again %+v, %v", text, page, again, err)
		}
	})
}
