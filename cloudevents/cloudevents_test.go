package cloudevents

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const base = feed.Base("https://hub.example.org")

// limits are as a hub has them.
var limits = resourcesync.Limits{Bytes: 1 << 20, Entries: 1000, Check: (*resourcesync.Change).Validate}

// mapping parses a Mapping that is good.
func mapping(t testing.TB, text string) *Mapping {
	t.Helper()
	m, err := ParseMapping([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lines shows changes.
func lines(changes []resourcesync.Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s %s", c.Change, c.Loc)
		if !c.Datetime.IsZero() {
			fmt.Fprintf(&b, " at %s", c.Datetime.Format(time.RFC3339Nano))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Events that others send, as they are in the wild.
func TestRead(t *testing.T) {
	const files = `{"changes":{"com.example.put":"updated","com.example.new":"created","com.example.gone":"deleted","com.example.seen":"skip"},"loc":"https://example.org/{subject}"}`
	for name, test := range map[string]struct{ mapping, file, want string }{
		"one": {files, "one.json", "updated https://example.org/reports%2F7%20a at 2026-01-31T23:59:59.5Z\n"},
		"batch in order": {files, "batch.json", "created https://example.org/a at 2026-02-01T00:00:00Z\n" +
			"deleted https://example.org/a\nupdated https://example.org/b at 2026-02-01T00:00:02Z\n"},
		"Debezium": {`{"by":"data.payload.op","changes":{"c":"created","r":"created","u":"updated","d":"deleted","*":"skip"},"loc":"https://example.org/items/{data.payload.after.id|data.payload.before.id}"}`,
			"debezium.json", "created https://example.org/items/1001 at 2020-01-13T14:04:18.597Z\ndeleted https://example.org/items/1002 at 2020-01-13T14:04:19.1Z\n"},
		"Debezium by its attribute": {`{"by":"iodebeziumop","changes":{"r":"created","d":"deleted"},"loc":"https://example.org/items/{data.payload.after.id|data.payload.before.id}"}`,
			"debezium.json", "created https://example.org/items/1001 at 2020-01-13T14:04:18.597Z\ndeleted https://example.org/items/1002 at 2020-01-13T14:04:19.1Z\n"},
		"the subject is the URI": {`{"changes":{"*":"updated"}}`, "uri.json", "updated https://example.org/a%20b?c=d#e\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", test.file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			changes, err := Read(f, mapping(t, test.mapping), limits)
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(changes); got != test.want {
				t.Errorf("it reads\n%s, want\n%s", got, test.want)
			}
		})
	}
}

// an returns an event with more members.
func an(more string) string {
	return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + more + `}`
}

// An error names the event and the rule, and says all that is wrong.
func TestReadRefuses(t *testing.T) {
	m := mapping(t, `{"changes":{"t":"updated"},"loc":"https://example.org/{subject}"}`)
	for text, want := range map[string]string{
		``:                                      "ends early",
		`[`:                                     "ends early",
		`[` + an(`,"subject":"a"`):              "ends early",
		an(`,"subject":"a"`) + `x`:              "no JSON",
		`[]`:                                    "",
		`[1]`:                                   "entry 1: an event is a JSON object",
		an(``):                                  "entry 1: the event has no subject, which its loc is made of",
		an(`,"subject":7`):                      "",
		an(`,"subject":""`):                     "no subject",
		an(`,"subject":["a"]`):                  "no subject",
		an(`,"subject":"a","time":"yesterday"`): `entry 1 (https://example.org/a): time is a time such as 2026-01-31T23:59:59Z, not "yesterday"`,
		`{"specversion":"0.3","id":"1","source":"/s","type":"t","subject":"a"}`:           `specversion is 1.0, not "0.3"`,
		`{"specversion":"1.0","id":"","source":"/s","type":"t","subject":"a"}`:            "the attribute id",
		`{"specversion":"1.0","id":"1","type":"t","subject":"a"}`:                         "the attribute source",
		`{"specversion":"1.0","id":"1","source":"/s","subject":"a"}`:                      "the attribute type",
		`{"specversion":"1.0","id":"1","source":"/s","type":"other","subject":"a"}`:       `type is "other", and the mapping of the set does not say`,
		`[` + an(``) + `,` + an(`,"subject":"a"`) + `,` + an(`,"subject":""`) + `]`:       "; entry 3: the event has no subject",
		an(`,"subject":"a","subject":"b"`):                                                "no JSON",
		strings.Repeat(`[`, 20_000):                                                       "no JSON",
		an(`,"subject":"a","data":"` + strings.Repeat("x", 2<<20) + `"`):                  "at most 1048576 bytes",
		`[` + strings.Repeat(an(`,"subject":"a"`)+",", 1000) + an(`,"subject":"a"`) + `]`: "entry 1001: a document has at most 1000 events",
		`[` + strings.Repeat(an(``)+",", 100) + an(``) + `]`:                              "entry 20: ",
	} {
		changes, err := Read(strings.NewReader(text), m, limits)
		if want == "" {
			if err != nil {
				t.Errorf("%.100s: %v", text, err)
			}
			continue
		}
		var e *resourcesync.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || changes != nil {
			t.Errorf("%.100s: the error is %v, want %q", text, err, want)
		}
		if e != nil && len(e.More) >= resourcesync.MaxErrors {
			t.Errorf("%.100s: %d more errors", text, len(e.More))
		}
	}
}

// An event of another hub of this kind, whose type and data say two things.
func TestReadContradiction(t *testing.T) {
	text := `{"specversion":"1.0","id":"1","source":"/s","type":"` + typePrefix + `deleted","data":{"loc":"https://example.org/a","change":"updated"}}`
	if changes, err := Read(strings.NewReader(text), &Mapping{}, limits); err == nil || changes != nil || !strings.Contains(err.Error(), `entry 1 (https://example.org/a): the type says "deleted", and the data "updated"`) {
		t.Errorf("%v, the error is %v", changes, err)
	}
}

// Room is asked for before memory is used, and its error is what Read returns.
func TestReadRoom(t *testing.T) {
	m := mapping(t, `{"changes":{"t":"updated"},"loc":"https://example.org/{subject}"}`)
	full := errors.New("full")
	l, most := limits, int64(0)
	l.Room = func(n int64) error {
		if most = max(most, n); n > 20_000 {
			return full
		}
		return nil
	}
	text := `[` + strings.Repeat(an(`,"subject":"a"`)+",", 500) + an(`,"subject":"a"`) + `]`
	if _, err := Read(strings.NewReader(text), m, l); !errors.Is(err, full) || most < 20_000 || most > 30_000 {
		t.Errorf("the error is %v with %d bytes", err, most)
	}
}

// A mapping that cannot work is refused when it is set.
func TestMappingRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                            "changes has 1 to 100",
		`[]`:                            "it is not {",
		`{"changes":{"a":"updated"}} x`: "more text",
		`{"changes":{"a":"changed"}}`:   `"a" means created, updated, deleted or skip, not "changed"`,
		`{"change":{"a":"updated"}}`:    "unknown field",
		`{"by":"Type","changes":{"a":"updated"}}`:                                "by: \"Type\" is neither",
		`{"by":"a.b","changes":{"a":"updated"}}`:                                 "only data has parts",
		`{"by":"data.","changes":{"a":"updated"}}`:                               "neither",
		`{"changes":{"a":"updated"},"loc":"https://example.org/"}`:               "all events would have one loc",
		`{"changes":{"a":"updated"},"loc":"https://example.org/{"}`:              "without a }",
		`{"changes":{"a":"updated"},"loc":"https://example.org/}{id}"}`:          "without a {",
		`{"changes":{"a":"updated"},"loc":"https://example.org/{}"}`:             "neither",
		`{"changes":{"a":"updated"},"loc":"` + strings.Repeat("{id}", 21) + `"}`: "more than 20",
	} {
		if _, err := ParseMapping([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("%s: the error is %v, want %q", text, err, want)
		}
	}
}

// batch returns changes as a hub has them.
func batch() *feed.Batch {
	length := int64(7)
	b := &feed.Batch{Set: "demo", After: feed.Cursor{Position: 4, Micros: 1_800_000_000_000_000}}
	for i, c := range []resourcesync.Change{
		{Loc: "https://example.org/a?b=c&d=\"e\"", Change: resourcesync.Created, Lastmod: time.Unix(1_700_000_000, 0).UTC(), Length: &length, Hash: "md5:00112233445566778899aabbccddeeff"},
		{Loc: "https://example.org/b", Change: resourcesync.Deleted, Datetime: time.Unix(1_700_000_001, 0).UTC()},
	} {
		b.Entries = append(b.Entries, feed.Entry{Cursor: feed.Cursor{Position: uint64(5 + i), Micros: 1_800_000_000_000_001 + int64(i)}, Change: c})
	}
	b.Cursor = b.Entries[1].Cursor
	return b
}

// What Format writes is read as the same changes by another hub, whose set needs no mapping.
func TestFormat(t *testing.T) {
	b := batch()
	text := Format(base).Append(nil, b, "")
	var events []struct {
		Specversion, ID, Source, Type, Subject, Time, Datacontenttype string
		Data                                                          map[string]any
	}
	if err := json.Unmarshal(text, &events); err != nil || len(events) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	e := events[0]
	if e.Specversion != "1.0" || e.ID != "5-1800000000000001" || e.Source != "https://hub.example.org/sets/demo/changes" || e.Type != "com.github.rshub.created" ||
		e.Subject != b.Entries[0].Change.Loc || e.Time != "2027-01-15T08:00:00.000001Z" || e.Datacontenttype != "application/json" || e.Data["position"] != 5.0 {
		t.Errorf("the first event is %+v", e)
	}
	changes, err := Read(strings.NewReader(string(text)), mapping(t, ""), resourcesync.Limits{Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		want := b.Entries[i].Change
		want.Datetime = b.Entries[i].Time() // the datetime of the first hub
		if got, want := resourcesync.AppendJSONMembers(nil, &c), resourcesync.AppendJSONMembers(nil, &want); string(got) != string(want) {
			t.Errorf("change %d is %s, want %s", i, got, want)
		}
	}
	if got := string(Format(base).Append(nil, &feed.Batch{Set: "demo"}, "")); got != "[]\n" {
		t.Errorf("a page without changes is %q", got)
	}
	for text, want := range map[string]string{
		`{"specversion":"1.0","id":"1","source":"/s","type":"com.github.rshub.deleted","subject":"https://example.org/a"}`:                                  "",
		`{"specversion":"1.0","id":"1","source":"/s","type":"com.github.rshub.deleted","data":{"loc":"https://example.org/a","change":"updated"}}`:          `the type says "deleted", and the data "updated"`,
		`{"specversion":"1.0","id":"1","source":"/s","type":"com.github.rshub.deleted","data":{"loc":"https://example.org/a","change":"deleted","size":1}}`: `data: unknown member "size"`,
		`{"specversion":"1.0","id":"1","source":"/s","type":"com.github.rshub.moved","subject":"https://example.org/a"}`:                                    "change is created, updated or deleted",
		`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.t","subject":"https://example.org/a"}`:                                             "the set has no mapping",
	} {
		_, err := Read(strings.NewReader(text), mapping(t, ""), limits)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: the error is %v, want %q", text, err, want)
		}
	}
}

// FuzzRead reads anything. What it takes can be published.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(err, "no examples")
	}
	maps := []string{``, `{"changes":{"*":"updated"}}`, `{"by":"data.payload.op","changes":{"c":"created","*":"skip"},"loc":"https://example.org/{data.payload.after.id|subject}"}`}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, m := range maps {
			f.Add(text, m)
		}
	}
	f.Add(Format(base).Append(nil, batch(), ""), "")
	f.Fuzz(func(t *testing.T, text []byte, m string) {
		parsed, err := ParseMapping([]byte(m))
		if err != nil {
			if !errors.Is(err, resourcesync.ErrInvalid) {
				t.Errorf("the mapping %q: %v", m, err)
			}
			return
		}
		changes, err := Read(strings.NewReader(string(text)), parsed, limits)
		if err != nil {
			if !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, resourcesync.ErrTooLarge) || changes != nil {
				t.Errorf("%q: %v with %d changes", text, err, len(changes))
			}
			return
		}
		for i := range changes {
			if err := changes[i].Validate(); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
