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

// read reads a body by a mapping, as a hub does.
func read(body []byte, mediaType, mapping string) ([]resourcesync.Change, string, error) {
	return Read(body, http.Header{"Content-Type": {mediaType}}, feed.Description{CloudEvents: feed.RawJSON(mapping)},
		resourcesync.Limits{Entries: 30, Check: (*resourcesync.Change).Validate})
}

// shown shows changes, one a line.
func shown(changes []resourcesync.Change) string {
	var lines []string
	for i := range changes {
		lines = append(lines, string(resourcesync.AppendJSONMembers(nil, &changes[i])))
	}
	return strings.Join(lines, "\n")
}

// eventOf returns an event whose members are type, source and subject, and what more says.
func eventOf(kind, source, subject, more string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","type":%q,"source":%q,"subject":%q%s}`, kind, source, subject, more)
}

// The kind of a change is the last word of the type, unless the mapping says it.
func TestKinds(t *testing.T) {
	for name, want := range map[string]string{
		"io.github.rshub.created": "created", "com.example.Created": "created", "com.example.CREATED": "created", "Microsoft.Storage.BlobCreated": "created",
		"com.example.object.deleted.v2": "deleted", "com.example.object.deleted.V12": "deleted", "item-updated": "updated", "item_update": "updated", "org.example.delete": "deleted", "create": "created",
		"c": "created", "r": "created", "u": "updated", "d": "deleted", "none": "none",
		"com.example.undeleted": "", "com.example.d": "", "com.example.none": "", "com.example.deleted.new": "", "com.example.created.v": "created", "deleted2": "", "": "",
	} {
		if got := kindOf(name); got != want {
			t.Errorf("%q says %q, want %q", name, got, want)
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
		name, mapping, event, want string // want has the beginning of an error after "!"
	}{
		{"a subject that is a URI", ``, eventOf(created, "/any", "https://example.org/a", ``), `"loc":"https://example.org/a","change":"created"`},
		{"a subject that is an IRI", ``, eventOf(created, "/any", "https://example.org/a b%20é", ``), `"loc":"https://example.org/a%20b%20%C3%A9","change":"created"`},
		{"a subject relative to the source", ``, eventOf(created, "https://example.org/b/", "c d/é", ``), `"loc":"https://example.org/b/c%20d/%C3%A9","change":"created"`},
		{"a time", ``, eventOf(created, "/any", "https://example.org/a", `,"time":"2026-01-02T03:04:05.5+01:00"`), `"loc":"https://example.org/a","change":"created","datetime":"2026-01-02T02:04:05.5Z"`},
		{"data of others", ``, eventOf(created, "/any", "https://example.org/a", `,"data":{"loc":7}`), `"loc":"https://example.org/a","change":"created"`},
		{"null is absent", ``, eventOf(created, "/any", "https://example.org/a", `,"time":null,"data":null`), `"loc":"https://example.org/a","change":"created"`},
		{"our data", ``, eventOf("io.github.rshub.updated", "/any", "https://example.org/a", `,"data":{"loc":"https://example.org/a","change":"updated","length":3,"position":7}`), `"loc":"https://example.org/a","change":"updated","length":3`},
		{"our URN, whatever the mapping is", `{"loc":"https://example.org/{subject}"}`, eventOf("io.github.rshub.updated", "/any", "urn:x:a", ``), `"loc":"urn:x:a","change":"updated"`},
		{"our own place", ``, eventOf("io.github.rshub.cursor", "/any", "x", ``), ``},
		{"our own divergence", ``, eventOf("io.github.rshub.diverged", "/any", "x", ``), ``},
		{"a type", `{"types":{"x":"deleted"}}`, eventOf("x", "/any", "https://example.org/a", ``), `"loc":"https://example.org/a","change":"deleted"`},
		{"a type that is no change", `{"types":{"` + created + `":"none"}}`, eventOf(created, "/any", "", ``), ``},
		{"a loc of the subject", `{"loc":"https://example.org/{subject}?v={/data/v}"}`, eventOf(created, "/any", "a/b ü", `,"data":{"v":1.50}`), `"loc":"https://example.org/a%2Fb%20%C3%BC?v=1.50","change":"created"`},
		{"a loc with slashes", `{"loc":"https://example.org/{+subject}"}`, eventOf(created, "/any", "a/b ü", ``), `"loc":"https://example.org/a/b%20%C3%BC","change":"created"`},
		{"a loc that the event says", `{"loc":"{+/data/urls/1}"}`, eventOf(created, "/any", "", `,"data":{"urls":["x","https://example.org/a?b=%20"]}`), `"loc":"https://example.org/a?b=%20","change":"created"`},
		{"a member with a slash", `{"loc":"https://example.org/{/data/a~1b}"}`, eventOf(created, "/any", "", `,"data":{"a/b":true}`), `"loc":"https://example.org/true","change":"created"`},
		{"Debezium, created", debezium, eventOf("io.debezium.connector.postgresql.DataChangeEvent", "/debezium/postgresql/shop", "", `,"iodebeziumop":"r","data":{"before":null,"after":{"id":1004}}`), `"loc":"https://example.org/items/1004","change":"created"`},
		{"Debezium, deleted", debezium, eventOf("io.debezium.connector.postgresql.DataChangeEvent", "/debezium/postgresql/shop", "", `,"iodebeziumop":"d","data":{"before":{"id":1004},"after":null}`), `"loc":"https://example.org/items/1004","change":"deleted"`},
		{"a value and a type", `{"change":"/op","types":{"t":"none","x":"none"}}`, `[` + eventOf("x", "/any", "", ``) + `,` + eventOf("y", "/any", "", `,"op":"t"`) + `]`, ``},

		{"an unknown type", ``, eventOf("com.example.moved", "/any", "https://example.org/a", ``), `!entry 1: /type is "com.example.moved", whose last word is not created, updated or deleted; to leave such events out, add "types":{"com.example.moved":"none"} to "cloudevents" in the description of the set`},
		{"Debezium, an unknown operation", debezium, eventOf("io.debezium.connector.postgresql.DataChangeEvent", "/debezium/postgresql/shop", "", `,"iodebeziumop":"m","data":{}`), `!entry 1: /iodebeziumop is "m", whose last word is not created, updated or deleted; to leave such events out, add "types":{"m":"none"} to`},
		{"an unknown operation next to types", `{"change":"/op","types":{"t":"none"}}`, eventOf(created, "/any", "", `,"op":"m"`), `!entry 1: /op is "m", whose last word is not created, updated or deleted; to leave such events out, add "types":{"m":"none"} to the types in "cloudevents"`},
		{"an unknown operation that is quoted", `{"change":"/op"}`, eventOf(created, "/any", "", `,"op":"a\"b\u0007\\"`), `!entry 1: /op is "a\"b�\\", whose last word is not created, updated or deleted; to leave such events out, add "types":{"a\"b\u0007\\":"none"} to`},
		{"an unknown operation that is a number", `{"change":"/op"}`, eventOf(created, "/any", "", `,"op":7`), `!entry 1: /op is "7", whose last word is not created, updated or deleted; to leave such events out, add "types":{"7":"none"} to`},
		{"an unknown operation that is long", `{"change":"/op"}`, eventOf(created, "/any", "", `,"op":"`+strings.Repeat("x", 300)+`"`), `!entry 1: /op is "` + strings.Repeat("x", 120) + `…", whose last word is not created, updated or deleted; "types" in "cloudevents" in the description of the set can say what it means`},
		{"no kind", `{"change":"/op"}`, eventOf(created, "/any", "https://example.org/a", ``), `!entry 1: /op is missing`},
		{"a subject that leads nowhere", ``, eventOf(created, "/any", "a", ``), `!entry 1: subject "a" is no URI of the web`},
		{"no subject", ``, eventOf(created, "https://example.org/", "", ``), `!entry 1: subject "" is no URI of the web`},
		{"a subject of another scheme", ``, eventOf(created, "https://example.org/", "urn:x:a", ``), `!entry 1: subject "urn:x:a" is no URI`},
		{"no member for the loc", `{"loc":"https://example.org/{/data/a|/data/b}"}`, eventOf(created, "/any", "", `,"data":{"a":null,"b":{}}`), `!entry 1: there is no {/data/a|/data/b}`},
		{"a loc that is none", `{"loc":"{+subject}"}`, eventOf(created, "/any", "a", ``), `!entry 1 (a): loc: got "a", want an absolute URI`},
		{"data that says another thing", ``, eventOf("io.github.rshub.updated", "/any", "https://example.org/a", `,"data":{"loc":"https://example.org/b","change":"updated"}`), `!entry 1: data says updated of https://example.org/b, and the event updated of https://example.org/a`},
		{"data that is no change", ``, eventOf("io.github.rshub.updated", "/any", "https://example.org/a", `,"data":{"lok":1}`), `!entry 1: data: unknown member "lok"`},
		{"a version that is not known", ``, `{"specversion":"0.3","id":"1","source":"/","type":"x"}`, `!entry 1: specversion is 1.0, not "0.3"`},
		{"no id", ``, `{"specversion":"1.0","source":"/","type":"x"}`, `!entry 1: id is missing`},
		{"an empty source", ``, `{"specversion":"1.0","id":"1","source":"","type":"x"}`, `!entry 1: source is missing`},
		{"an id that is a number", ``, `{"specversion":"1.0","id":1,"source":"/","type":"x"}`, `!entry 1: id is a string`},
		{"a time that is none", ``, eventOf(created, "/any", "https://example.org/a", `,"time":"yesterday"`), `!entry 1: time: `},
		{"too many members", ``, `{"specversion":"1.0"` + members + `}`, `!entry 1: an event has at most 1000 members`},
		{"no object", ``, `7`, `!entry 1: an event is an object`},
		{"nothing", ``, ``, `!entry 1: document is empty`},
		{"half an event", ``, `{"specversion":"1.0"`, `!entry 1: document ends early`},
		{"a member that is there twice", ``, `{"id":"1","id":"2"}`, `!entry 1: duplicate member "id"`},
		{"half a batch", ``, `[` + eventOf(created, "/any", "https://example.org/a", ``) + `,`, `!entry 2: document ends early`},
		{"something behind a batch", ``, `[] 7`, `!something follows`},
		{"two that are wrong", ``, `[` + eventOf(created, "/any", "https://example.org/a", ``) + `,7,` + eventOf(created, "/any", "a", ``) + `]`, `!entry 2: an event is an object; entry 3: subject "a"`},
		{"too many that are wrong", ``, `[7` + strings.Repeat(",7", 25) + `]`, `!entry 1: an event is an object; entry 2:`},
		{"too many", ``, `[` + eventOf(created, "/any", "https://example.org/a", ``) + strings.Repeat(`,`+eventOf(created, "/any", "https://example.org/a", ``), 30) + `]`, `!entry 31: a batch has at most 30`},
		{"an empty batch", ``, `[]`, ``},
	} {
		mediaType := MediaType
		if strings.HasPrefix(test.event, "[") {
			mediaType = BatchMediaType
		}
		changes, identity, err := read([]byte(test.event), mediaType, test.mapping)
		if says, bad := strings.CutPrefix(test.want, "!"); bad {
			if e, ok := errors.AsType[*resourcesync.Error](err); !ok || !strings.HasPrefix(err.Error(), says) || len(changes) > 0 || len(e.More) >= resourcesync.MaxErrors {
				t.Errorf("%s: %v, want %s", test.name, err, says)
			}
			continue
		}
		if err != nil || shown(changes) != test.want || (identity == "") != (len(changes) == 0) {
			t.Errorf("%s: %s, %v, want %s", test.name, shown(changes), err, test.want)
		}
	}
	full := errors.New("full")
	if _, _, err := Read([]byte(eventOf(created, "/", "https://example.org/a", "")), http.Header{}, feed.Description{}, resourcesync.Limits{CheckMemory: func(n int64) error {
		if n < 1000 {
			t.Errorf("a change takes %d bytes", n)
		}
		return full
	}}); err != full {
		t.Errorf("without room: %v", err)
	}
}

// Debezium labels a batch as one event.
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
		{"array in an array as event", MediaType, `[` + one + `,[` + two + `]]`, "!entry 2: an event is an object"},
		{"half an array as event", MediaType, `[` + one, "!entry 2: document ends early"},
		{"array as event, and another", MediaType, `[` + one + `][` + two + `]`, "!something follows the end of the events"},
		{"event as batch", BatchMediaType, one, "!a batch is an array of events, not an object; send one event as application/cloudevents+json"},
		{"number as batch", BatchMediaType, "7", "!a batch is an array of events"},
		{"nothing as batch", BatchMediaType, "", "!a batch is an array of events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes, _, err := read([]byte(tt.body), tt.mediaType, "")
			got := shown(changes)
			if err != nil {
				got = "!" + err.Error()
			}
			if got != tt.want {
				t.Errorf("Read(%q as %s) = %s, want %s", tt.body, tt.mediaType, got, tt.want)
			}
		})
	}
}

func TestMappingRefuses(t *testing.T) {
	for mapping, says := range map[string]string{
		`7`: "it is {", `{"typ":{}}`: "it is {", `{"types":{"a":"moved"}}`: `types: "a" means`, `{"types":{"a":""}}`: `types: "a" means`, `{"change":"op"}`: "change is a JSON pointer",
		`{"loc":"https://example.org/{}"}`: "loc: {} is", `{"loc":"https://example.org/{/a~2}"}`: "loc: {/a~2} is", `{"loc":"https://example.org/{a"}`: "loc: ", `{"loc":"/items/{a}"}`: `loc: got "/items/x", want an absolute URI`,
		`{"loc":"https://example.org/` + strings.Repeat("a", 9_000) + `"}`: "it has at most",
	} {
		if _, err := ParseMapping(mapping); !errors.Is(err, resourcesync.ErrInvalid) || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%.100s: %v, want %s", mapping, err, says)
		}
	}
}

// A request in binary mode has its attributes in headers.
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
		{header("application/json"), `{`, "!the data is no valid JSON", item},
		{header("text/plain", "Ce-Subject", "%C3"), "", "!Ce-subject is no attribute", item},
		{header("text/plain", "Ce-Subject", "100% ü"), "", "https://example.org/100%25%20%C3%BC", item},
		{header("text/plain", "Ce-Subject", "https://example.org/a%2Fb%20c%3f"), "", "https://example.org/a%2Fb%20c%3f", feed.Description{}},
		{header("text/plain", "Ce-Subject", "a;b"), "", "!Ce-subject is there 2 times", item},
		{header("text/plain", "Ce-Data", "x"), "", "!Ce-data is no attribute", item},
		{header("text/plain", "Ce-Subject", "x"), "", "!entry 1: subject", feed.Description{}},
		{header("text/plain", "Ce-Specversion", "2"), "", "!entry 1: specversion", item},
	} {
		changes, _, err := Read([]byte(test.body), test.header, test.d, resourcesync.Limits{})
		if says, bad := strings.CutPrefix(test.want, "!"); bad {
			if err == nil || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%v: %v, want %s", test.header, err, says)
			}
		} else if err != nil || len(changes) != 1 || changes[0].Loc != test.want {
			t.Errorf("%v: %s, %v, want %s", test.header, shown(changes), err, test.want)
		}
	}
}

// The identity of a request depends on what the events say, and on nothing else.
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
			t.Errorf("%s is the same as %q, %v", test.body, before, err)
		}
		if test.same == "" {
			seen[identity] = test.body
		}
	}
}

// What is read is valid, or it is refused with an *Error; and written again it is read as the same.
func FuzzEvents(f *testing.F) {
	examples, err := filepath.Glob("testdata/*.json")
	if err != nil || len(examples) == 0 {
		f.Fatal("there are no examples: ", err)
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
				t.Errorf("%q is refused with %v", body, err)
			}
			return
		}
		if (identity == "") != (len(changes) == 0) {
			t.Errorf("%d changes have the identity %q", len(changes), identity)
		}
		for i := range changes {
			if err := changes[i].Validate(); err != nil {
				t.Errorf("%q is read as a change that is not valid: %v", body, err)
			}
		}
		if len(changes) == 0 {
			return
		}
		b := feed.NewBatch("demo", feed.Cursor{}, feed.Cursor{Position: uint64(len(changes)), Micros: 1795234750293675}, changes)
		again, _, err := read(writer.Page().Append(nil, b, ""), BatchMediaType, "")
		if err != nil {
			t.Fatalf("%q is written as what cannot be read: %v", body, err)
		}
		for i := range again {
			changes[i].Datetime = b.Entries[i].Time()
		}
		if shown(again) != shown(changes) {
			t.Errorf("%q is\n%s\nand again\n%s", body, shown(changes), shown(again))
		}
	})
}
