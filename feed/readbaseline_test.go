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

// A page that contradicts itself is refused.
func TestReadBaselineRefuses(t *testing.T) {
	good := string(examplePages()[0].write(""))
	end := string(examplePages()[2].write(""))
	some := string(examplePages()[3].write(""))
	for _, test := range []struct{ text, old, new, want string }{
		{good, `"baseline":true,`, ``, `"baseline" is missing`},
		{good, `"baseline":true`, `"baseline":false`, `"changes" is missing`},
		{end, `"baseline":false`, `"baseline":true`, `"resources" is missing`},
		{good, `"baseline":true`, `"baseline":1`, `baseline: got a number, want a boolean`},
		{good, `"set":"demo",`, ``, `"" cannot name a set`},
		{good, `"set":"demo"`, `"set":"/"`, `cannot name a set`},
		{good, `"resources":[`, `"changes":[`, `has no changes yet`},
		{good, `"count":9`, `"count":-1`, `count: got -1, want a whole number`},
		{good, `~3~7"`, `"`, `is no place`},
		{good, `~5~7"`, `~6~7"`, `do not lead from`},
		{good, `"9-9000009~5~7"`, `"8-9000009~5~7"`, `do not lead from`},
		{good, `~5~7"`, `~5~8"`, `do not lead from`},
		{good, `urn:b`, `urn:a`, `in the order of loc`},
		{good, `"change":"created"`, `"change":"deleted"`, `resources that exist`},
		{good, `"position":9`, `"position":10`, `newer than the baseline`},
		{good, `"position":4,`, ``, `has a position`},
		{some, `~50~7"`, `~3~7"`, `do not lead from`},
		{end, `"changes":[]`, `"changes":[],"resources":[]`, `do not stand in one page`},
		{end, `"cursor":"9-9000009"`, `"cursor":"9-9000009~9"`, `is no cursor`},
		{end, `"changes":[]`, `"changes":[{"loc":"urn:a"}]`, `has no changes yet`},
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
