package cloudevents

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// read reads a body with a mapping, as the hub does.
func read(body []byte, mediaType, mapping string) ([]resourcesync.Change, string, error) {
	return Read(body, http.Header{"Content-Type": {mediaType}}, feed.Description{CloudEvents: feed.RawJSON(mapping)},
		resourcesync.Limits{Entries: 30, Check: (*resourcesync.Change).Validate})
}

// formatChanges formats changes as one line of JSON each.
func formatChanges(changes []resourcesync.Change) string {
	var lines []string
	for i := range changes {
		lines = append(lines, string(resourcesync.AppendJSONMembers(nil, &changes[i])))
	}
	return strings.Join(lines, "\n")
}

// eventOf returns the JSON of an event. more are additional members.
func eventOf(kind, source, subject, more string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","type":%q,"source":%q,"subject":%q%s}`, kind, source, subject, more)
}

// The last word of the type is the kind of a change, unless the mapping overrides it.
func TestKinds(t *testing.T) {
	for name, want := range map[string]string{
		"io.github.rshub.created": "created", "com.example.Created": "created", "com.example.CREATED": "created", "Microsoft.Storage.BlobCreated": "created",
		"com.example.object.deleted.v2": "deleted", "com.example.object.deleted.V12": "deleted", "item-updated": "updated", "item_update": "updated", "org.example.delete": "deleted", "create": "created",
		"c": "created", "r": "created", "u": "updated", "d": "deleted", "none": "none",
		"com.example.undeleted": "", "com.example.d": "", "com.example.none": "", "com.example.deleted.new": "", "com.example.created.v": "created", "deleted2": "", "": "",
	} {
		if got := kindOf(name); got != want {
			t.Errorf("kindOf(%q) = %q, want %q", name, got, want)
		}
	}
}

const created = "com.example.created"

func TestMapping(t *testing.T) {
	members := ""
	for i := range 1000 {
		members += fmt.Sprintf(`,"a%d":0`, i)
	}
	const debezium = `{"change":"/iodebeziumop","loc":"https://example.org/items/{/data/after/id|/data/before/id}"}`
	for _, test := range []struct {
		name, mapping, event, want string // want is a prefix of the error after "!"
	}{
		{"subject is a URI", ``, eventOf(created, "/any", "https://example.org/a", ``), `"loc":"https://example.org/a","change":"created"`},
		{"subject is an IRI", ``, eventOf(created, "/any", "https://example.org/a b%20é", ``), `"loc":"https://example.org/a%20b%20%C3%A9","change":"created"`},
		{"relative subject", ``, eventOf(created, "https://example.org/b/", "c d/é", ``), `"loc":"https://example.org/b/c%20d/%C3%A9","change":"created"`},
		{"time", ``, eventOf(created, "/any", "https://example.org/a", `,"time":"2026-01-02T03:04:05.5+01:00"`), `"loc":"https://example.org/a","change":"created","datetime":"2026-01-02T02:04:05.5Z"`},
		{"foreign data", ``, eventOf(created, "/any", "https://example.org/a", `,"data":{"loc":7}`), `"loc":"https://example.org/a","change":"created"`},
		{"null is absent", ``, eventOf(created, "/any", "https://example.org/a", `,"time":null,"data":null`), `"loc":"https://example.org/a","change":"created"`},
		{"own data", ``, eventOf("io.github.rshub.updated", "/any", "https://example.org/a", `,"data":{"loc":"https://example.org/a","change":"updated","length":3,"position":7}`), `"loc":"https://example.org/a","change":"updated","length":3`},
		{"own URN ignores the mapping", `{"loc":"https://example.org/{subject}"}`, eventOf("io.github.rshub.updated", "/any", "urn:x:a", ``), `"loc":"urn:x:a","change":"updated"`},
		{"own cursor event", ``, eventOf("io.github.rshub.cursor", "/any", "x", ``), ``},
		{"own diverged event", ``, eventOf("io.github.rshub.diverged", "/any", "x", ``), ``},
		{"mapped type", `{"types":{"x":"deleted"}}`, eventOf("x", "/any", "https://example.org/a", ``), `"loc":"https://example.org/a","change":"deleted"`},
		{"type mapped to none", `{"types":{"` + created + `":"none"}}`, eventOf(created, "/any", "", ``), ``},
		{"loc from the subject", `{"loc":"https://example.org/{subject}?v={/data/v}"}`, eventOf(created, "/any", "a/b ü", `,"data":{"v":1.50}`), `"loc":"https://example.org/a%2Fb%20%C3%BC?v=1.50","change":"created"`},
		{"loc with slashes", `{"loc":"https://example.org/{+subject}"}`, eventOf(created, "/any", "a/b ü", ``), `"loc":"https://example.org/a/b%20%C3%BC","change":"created"`},
		{"loc from the event", `{"loc":"{+/data/urls/1}"}`, eventOf(created, "/any", "", `,"data":{"urls":["x","https://example.org/a?b=%20"]}`), `"loc":"https://example.org/a?b=%20","change":"created"`},
		{"member with a slash", `{"loc":"https://example.org/{/data/a~1b}"}`, eventOf(created, "/any", "", `,"data":{"a/b":true}`), `"loc":"https://example.org/true","change":"created"`},
		{"Debezium, created", debezium, eventOf("io.debezium.connector.postgresql.DataChangeEvent", "/debezium/postgresql/shop", "", `,"iodebeziumop":"r","data":{"before":null,"after":{"id":1004}}`), `"loc":"https://example.org/items/1004","change":"created"`},
		{"Debezium, deleted", debezium, eventOf("io.debezium.connector.postgresql.DataChangeEvent", "/debezium/postgresql/shop", "", `,"iodebeziumop":"d","data":{"before":{"id":1004},"after":null}`), `"loc":"https://example.org/items/1004","change":"deleted"`},
		{"mapped value and type", `{"change":"/op","types":{"t":"none","x":"none"}}`, `[` + eventOf("x", "/any", "", ``) + `,` + eventOf("y", "/any", "", `,"op":"t"`) + `]`, ``},

		{"unknown type", ``, eventOf("com.example.moved", "/any", "https://example.org/a", ``), `!entry 1: /type: unknown kind of change "com.example.moved"; want created, updated or deleted as the last word; to ignore such events, add "types":{"com.example.moved":"none"} to "cloudevents" in the description of the set`},
		{"Debezium, unknown operation", debezium, eventOf("io.debezium.connector.postgresql.DataChangeEvent", "/debezium/postgresql/shop", "", `,"iodebeziumop":"m","data":{}`), `!entry 1: /iodebeziumop: unknown kind of change "m"; want created, updated or deleted as the last word; to ignore such events, add "types":{"m":"none"} to`},
		{"unknown operation with types", `{"change":"/op","types":{"t":"none"}}`, eventOf(created, "/any", "", `,"op":"m"`), `!entry 1: /op: unknown kind of change "m"; want created, updated or deleted as the last word; to ignore such events, add "types":{"m":"none"} to the types in "cloudevents"`},
		{"unknown operation, quoted", `{"change":"/op"}`, eventOf(created, "/any", "", `,"op":"a\"b\u0007\\"`), `!entry 1: /op: unknown kind of change "a\"b�\\"; want created, updated or deleted as the last word; to ignore such events, add "types":{"a\"b\u0007\\":"none"} to`},
		{"unknown operation, number", `{"change":"/op"}`, eventOf(created, "/any", "", `,"op":7`), `!entry 1: /op: unknown kind of change "7"; want created, updated or deleted as the last word; to ignore such events, add "types":{"7":"none"} to`},
		{"unknown operation, long", `{"change":"/op"}`, eventOf(created, "/any", "", `,"op":"`+strings.Repeat("x", 300)+`"`), `!entry 1: /op: unknown kind of change "` + strings.Repeat("x", 120) + `…"; want created, updated or deleted as the last word; map it with "types" in "cloudevents" in the description of the set`},
		{"no kind", `{"change":"/op"}`, eventOf(created, "/any", "https://example.org/a", ``), `!entry 1: /op is missing`},
		{"unresolvable subject", ``, eventOf(created, "/any", "a", ``), `!entry 1: subject "a" is not an http or https URI`},
		{"no subject", ``, eventOf(created, "https://example.org/", "", ``), `!entry 1: subject "" is not an http or https URI`},
		{"subject with another scheme", ``, eventOf(created, "https://example.org/", "urn:x:a", ``), `!entry 1: subject "urn:x:a" is not an http or https URI`},
		{"missing member for loc", `{"loc":"https://example.org/{/data/a|/data/b}"}`, eventOf(created, "/any", "", `,"data":{"a":null,"b":{}}`), `!entry 1: event has no text or number at {/data/a|/data/b}`},
		{"invalid loc", `{"loc":"{+subject}"}`, eventOf(created, "/any", "a", ``), `!entry 1 (a): loc: got "a", want an absolute URI`},
		{"contradictory data", ``, eventOf("io.github.rshub.updated", "/any", "https://example.org/a", `,"data":{"loc":"https://example.org/b","change":"updated"}`), `!entry 1: data contradicts the event: got updated of https://example.org/b, want updated of https://example.org/a`},
		{"invalid data", ``, eventOf("io.github.rshub.updated", "/any", "https://example.org/a", `,"data":{"lok":1}`), `!entry 1: data: unknown member "lok"`},
		{"unknown version", ``, `{"specversion":"0.3","id":"1","source":"/","type":"x"}`, `!entry 1: specversion: got "0.3", want "1.0"`},
		{"no id", ``, `{"specversion":"1.0","source":"/","type":"x"}`, `!entry 1: id is missing`},
		{"empty source", ``, `{"specversion":"1.0","id":"1","source":"","type":"x"}`, `!entry 1: source is missing`},
		{"number as id", ``, `{"specversion":"1.0","id":1,"source":"/","type":"x"}`, `!entry 1: id is not a string`},
		{"invalid time", ``, eventOf(created, "/any", "https://example.org/a", `,"time":"yesterday"`), `!entry 1: time: `},
		{"too many members", ``, `{"specversion":"1.0"` + members + `}`, `!entry 1: event has too many members; want at most 1000`},
		{"not an object", ``, `7`, `!entry 1: event is not a JSON object`},
		{"empty body", ``, ``, `!entry 1: document is empty`},
		{"truncated event", ``, `{"specversion":"1.0"`, `!entry 1: document ends early`},
		{"duplicate member", ``, `{"id":"1","id":"2"}`, `!entry 1: duplicate member "id"`},
		{"truncated batch", ``, `[` + eventOf(created, "/any", "https://example.org/a", ``) + `,`, `!entry 2: document ends early`},
		{"data after a batch", ``, `[] 7`, `!unexpected data after the events`},
		{"two invalid events", ``, `[` + eventOf(created, "/any", "https://example.org/a", ``) + `,7,` + eventOf(created, "/any", "a", ``) + `]`, `!entry 2: event is not a JSON object; entry 3: subject "a"`},
		{"too many invalid events", ``, `[7` + strings.Repeat(",7", 25) + `]`, `!entry 1: event is not a JSON object; entry 2:`},
		{"too many events", ``, `[` + eventOf(created, "/any", "https://example.org/a", ``) + strings.Repeat(`,`+eventOf(created, "/any", "https://example.org/a", ``), 30) + `]`, `!entry 31: batch has too many events; send at most 30`},
		{"empty batch", ``, `[]`, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			mediaType := MediaType
			if strings.HasPrefix(test.event, "[") {
				mediaType = BatchMediaType
			}
			changes, identity, err := read([]byte(test.event), mediaType, test.mapping)
			if says, bad := strings.CutPrefix(test.want, "!"); bad {
				if e, ok := errors.AsType[*resourcesync.Error](err); !ok || !strings.HasPrefix(err.Error(), says) || len(changes) > 0 || len(e.More) >= resourcesync.MaxErrors {
					t.Errorf("Read() = %v, want %s", err, says)
				}
				return
			}
			if err != nil || formatChanges(changes) != test.want || (identity == "") != (len(changes) == 0) {
				t.Errorf("Read() = %s, %v, want %s", formatChanges(changes), err, test.want)
			}
		})
	}
	full := errors.New("full")
	if _, _, err := Read([]byte(eventOf(created, "/", "https://example.org/a", "")), http.Header{}, feed.Description{}, resourcesync.Limits{CheckMemory: func(n int64) error {
		if n < 1000 {
			t.Errorf("got %d bytes for a change, want at least 1000", n)
		}
		return full
	}}); err != full {
		t.Errorf("Read() without memory = %v, want the error of CheckMemory", err)
	}
}

// Debezium declares a batch as a single event.
func TestBatchLabels(t *testing.T) {
	one, two := eventOf(created, "/any", "https://example.org/a", ""), eventOf(created, "/any", "https://example.org/b", "")
	first, second := `"loc":"https://example.org/a","change":"created"`, `"loc":"https://example.org/b","change":"created"`
	for _, tt := range []struct {
		name, mediaType, body, want string // want is an error after "!"
	}{
		{"event as event", MediaType, one, first},
		{"array as batch", BatchMediaType, `[` + one + `,` + two + `]`, first + "\n" + second},
		{"array as event", MediaType, `[` + one + `,` + two + `]`, first + "\n" + second},
		{"array of one as event", MediaType, `[` + one + `]`, first},
		{"array as event, indented", MediaType, "\r\n\t [\n" + one + "\n, " + two + "\n]\n", first + "\n" + second},
		{"array as event, with a charset", MediaType + "; charset=utf-8", `[` + one + `]`, first},
		{"empty array as event", MediaType, `[]`, ""},
		{"array in an array as event", MediaType, `[` + one + `,[` + two + `]]`, "!entry 2: event is not a JSON object"},
		{"half an array as event", MediaType, `[` + one, "!entry 2: document ends early"},
		{"array as event, and another", MediaType, `[` + one + `][` + two + `]`, "!unexpected data after the events"},
		{"event as batch", BatchMediaType, one, "!got an object, want an array of events; send a single event as application/cloudevents+json"},
		{"number as batch", BatchMediaType, "7", "!batch is not an array of events"},
		{"nothing as batch", BatchMediaType, "", "!batch is not an array of events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes, _, err := read([]byte(tt.body), tt.mediaType, "")
			got := formatChanges(changes)
			if err != nil {
				got = "!" + err.Error()
			}
			if got != tt.want {
				t.Errorf("Read(%q as %s) = %s, want %s", tt.body, tt.mediaType, got, tt.want)
			}
		})
	}
}

func TestParseMappingInvalid(t *testing.T) {
	for mapping, want := range map[string]string{
		`7`: "invalid mapping: ", `{"typ":{}}`: "invalid mapping: ", `{"types":{"a":"moved"}}`: `types: invalid kind for "a"`, `{"types":{"a":""}}`: `types: invalid kind for "a"`, `{"change":"op"}`: "change: invalid JSON pointer",
		`{"loc":"https://example.org/{}"}`: "loc: {} is", `{"loc":"https://example.org/{/a~2}"}`: "loc: {/a~2} is", `{"loc":"https://example.org/{a"}`: "loc: ", `{"loc":"/items/{a}"}`: `loc: got "/items/x", want an absolute URI`,
		`{"loc":"https://example.org/` + strings.Repeat("a", 9_000) + `"}`: "mapping is too long",
	} {
		if _, err := ParseMapping(mapping); !errors.Is(err, resourcesync.ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ParseMapping(%.100s) = %v, want %s", mapping, err, want)
		}
	}
}

// A request in binary mode has the attributes in headers.
func TestBinary(t *testing.T) {
	header := func(mediaType string, more ...string) http.Header {
		h := http.Header{"Content-Type": {mediaType}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/any"}, "Ce-Type": {created}, "Ce-Subject": {"https://example.org/%22"}}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = strings.Split(more[i+1], ";")
		}
		return h
	}
	item := feed.Description{CloudEvents: `{"loc":"https://example.org/{/data/id|subject}"}`}
	for _, test := range []struct {
		header     http.Header
		body, want string
		d          feed.Description
	}{
		{header("application/json"), `{"id":7}`, "https://example.org/7", item},
		{header("application/x+json; charset=utf-8"), `{"id":7}`, "https://example.org/7", item},
		{header("text/plain", "Ce-Subject", "a%C3%BC"), `{"id":7}`, "https://example.org/a%C3%BC", item},
		{header(""), "", "https://example.org/https%3A%2F%2Fexample.org%2F%22", item},
		{header(BatchMediaType, "Ce-Subject", "x"), `[]`, "https://example.org/x", item},
		{header("application/json"), `{`, "!data is not valid JSON", item},
		{header("text/plain", "Ce-Subject", "%C3"), "", "!header Ce-subject: invalid attribute name", item},
		{header("text/plain", "Ce-Subject", "100% ü"), "", "https://example.org/100%25%20%C3%BC", item},
		{header("text/plain", "Ce-Subject", "https://example.org/a%2Fb%20c%3f"), "", "https://example.org/a%2Fb%20c%3f", feed.Description{}},
		{header("text/plain", "Ce-Subject", "a;b"), "", "!header Ce-subject: got 2 values, want 1", item},
		{header("text/plain", "Ce-Data", "x"), "", "!header Ce-data: invalid attribute name", item},
		{header("text/plain", "Ce-Subject", "x"), "", "!entry 1: subject", feed.Description{}},
		{header("text/plain", "Ce-Specversion", "2"), "", "!entry 1: specversion", item},
	} {
		changes, _, err := Read([]byte(test.body), test.header, test.d, resourcesync.Limits{})
		if says, bad := strings.CutPrefix(test.want, "!"); bad {
			if err == nil || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("Read(%v) = %v, want %s", test.header, err, says)
			}
		} else if err != nil || len(changes) != 1 || changes[0].Loc != test.want {
			t.Errorf("Read(%v) = %s, %v, want %s", test.header, formatChanges(changes), err, test.want)
		}
	}
}

// The identity of a request depends only on the content of the events.
func TestIdentity(t *testing.T) {
	one := eventOf(created, "/any", "https://example.org/a", "")
	seen := map[string]string{}
	for _, test := range []struct{ body, same string }{
		{one, ""},
		{"[" + one + "]", one},
		{eventOf(created, "/any", "https://example.org/a", `,"time":"2026-01-02T03:04:05Z","data":7`), one},
		{eventOf("com.example.deleted", "/any", "https://example.org/a", ""), ""},
		{eventOf(created, "/other", "https://example.org/a", ""), ""},
		{eventOf(created, "/any", "https://example.org/b", ""), ""},
		{strings.Replace(one, `"id":"1"`, `"id":"2"`, 1), ""},
		{"[" + one + "," + one + "]", ""},
	} {
		mediaType := MediaType
		if test.body[0] == '[' {
			mediaType = BatchMediaType
		}
		_, identity, err := read([]byte(test.body), mediaType, "")
		if before, known := seen[identity]; err != nil || known != (test.same != "") || before != test.same {
			t.Errorf("Read(%s): got the identity of %q, %v, want the identity of %q", test.body, before, err, test.same)
		}
		if test.same == "" {
			seen[identity] = test.body
		}
	}
}

// An accepted request has valid changes, which are equal after writing and reading them again. A
// refused one has an *Error.
func FuzzEvents(f *testing.F) {
	examples, err := filepath.Glob("testdata/*.json")
	if err != nil || len(examples) == 0 {
		f.Fatal("no examples: ", err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, bytes.HasPrefix(text, []byte("[")), "")
	}
	f.Add([]byte(eventOf(created, "https://example.org/", "a b", `,"time":"2026-01-02T03:04:05Z"`)), false, "")
	f.Add([]byte(eventOf("x", "/", "a", `,"op":"d","data":{"after":null,"before":{"id":7}}`)), false, `{"change":"/op","loc":"https://example.org/{/data/after/id|/data/before/id}{+subject}"}`)
	f.Add([]byte(eventOf("x", "/", "a", "")), false, `{"types":{"x":"none"},"loc":"{/0"}`)
	f.Fuzz(func(t *testing.T, body []byte, batch bool, mapping string) {
		mediaType := MediaType
		if batch {
			mediaType = BatchMediaType
		}
		changes, identity, err := read(body, mediaType, mapping)
		if err != nil {
			if _, ok := errors.AsType[*resourcesync.Error](err); !ok || changes != nil || identity != "" {
				t.Errorf("Read(%q) = %v, want an *Error and no changes", body, err)
			}
			return
		}
		if (identity == "") != (len(changes) == 0) {
			t.Errorf("got %d changes with the identity %q", len(changes), identity)
		}
		for i := range changes {
			if err := changes[i].Validate(); err != nil {
				t.Errorf("Read(%q): got an invalid change: %v", body, err)
			}
		}
		if len(changes) == 0 {
			return
		}
		b := feed.NewBatch("demo", feed.Cursor{}, feed.Cursor{Position: uint64(len(changes)), Micros: 1795234750293675}, changes)
		again, _, err := read(writer.Page().Append(nil, b, ""), BatchMediaType, "")
		if err != nil {
			t.Fatalf("Read(%q): got changes that cannot be read again: %v", body, err)
		}
		for i := range again {
			changes[i].Datetime = b.Entries[i].Time()
		}
		if formatChanges(again) != formatChanges(changes) {
			t.Errorf("Read(%q): got\n%s\nand after writing them\n%s", body, formatChanges(changes), formatChanges(again))
		}
	})
}
