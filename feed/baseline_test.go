package feed

import (
	"errors"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestPlace(t *testing.T) {
	want := Place{Cursor{7, 1_700_000_000_000_000}, 42, 0}
	if got, err := ParsePlace(want.String()); got != want || err != nil || want.String() != "7-1700000000000000~42" {
		t.Errorf("%v is read as %v, %v", want, got, err)
	}
	for _, s := range []string{"", "~", "7", "7-8", "7-8~", "~9", "7-8~-1", "7-8~9~", "7-8~9~g", "7-8~9~9~9", "7-8~9~100000000", "7-8~ 9", "7-8~9007199254740992", "a-8~9", SinceBaseline} {
		if p, err := ParsePlace(s); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("%q is read as %v, %v", s, p, err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("7-1700000000000000~42")
	f.Add("7-1700000000000000~42~a0b")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePlace(s)
		if err != nil {
			return
		}
		if again, err := ParsePlace(p.String()); again != p || err != nil {
			t.Errorf("%q is %v, and read again %v, %v", s, p, again, err)
		}
	})
}

// parts returns a part of a baseline with one resource, and its end, in a format.
func parts(f *Format, next string) string {
	e := &Entry{Cursor: Cursor{5, 1_700_000_000_000_005}, Change: twoEntries().Entries[0].Change}
	part := &BaselinePart{
		Set: "a", After: Place{Cursor{7, 1_700_000_000_000_007}, 41, 0x7f}, Place: Place{Cursor{7, 1_700_000_000_000_007}, 42, 0x7f}, Count: 1, Complete: true, Restart: true,
	}
	end := &BaselinePart{Set: "a", After: part.Place, Place: part.Place, Count: 1, End: true, Position: "aa", Content: "bb"}
	w := f.Baseline()
	text := w.Tail(w.Entry(w.Head(nil, part, next), e, true), part, next)
	w = f.Baseline()
	return string(w.Tail(w.Head(append(text, '|'), end, next), end, next))
}

func TestBaselineFormats(t *testing.T) {
	entry := string(twoEntries().Entries[0].AppendJSON(nil))
	entry = `{"position":5,"datetime":"2023-11-14T22:13:20.000005Z"` + entry[strings.Index(entry, `Z"`)+2:]
	for _, test := range []struct {
		name   string
		format *Format
		next   string
		want   string
	}{
		{"JSON, pushed", JSON, "", `{"set":"a","baseline":true,"complete":true,"count":1,"restart":true,"after":"7-1700000000000007~41~7f","cursor":"7-1700000000000007~42~7f","resources":[` + entry + `]}|` +
			`{"set":"a","baseline":false,"complete":false,"count":1,"position":"aa","content":"bb","after":"7-1700000000000007~42~7f","cursor":"7-1700000000000007","changes":[]}`},
		{"JSON, a page", JSON, "u", `{"set":"a","baseline":true,"complete":true,"count":1,"restart":true,"after":"7-1700000000000007~41~7f","cursor":"7-1700000000000007~42~7f","next":"u","resources":[` + entry + "]}\n|" +
			`{"set":"a","baseline":false,"complete":false,"count":1,"position":"aa","content":"bb","after":"7-1700000000000007~42~7f","cursor":"7-1700000000000007","next":"u","changes":[]}` + "\n"},
		{"NDJSON", NDJSON, "u", entry + "\n|"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := parts(test.format, test.next); got != test.want {
				t.Errorf("it is\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	if b, _, err := ReadBatch(strings.NewReader(strings.Split(parts(JSON, ""), "|")[1]), resourcesync.Limits{}); err != nil || b.Cursor != b.After || b.Cursor.Position != 7 {
		t.Errorf("the end of a baseline is read as the batch %+v, %v", b, err)
	}
}

func TestBaselineXML(t *testing.T) {
	part, end, _ := strings.Cut(parts(XML, ""), "|")
	d, err := resourcesync.ReadXML(strings.NewReader(part), resourcesync.Limits{})
	if err != nil || d.Capability != baselineCapability || d.At.UnixMicro() != 1_700_000_000_000_007 || len(d.Items) != 1 {
		t.Fatalf("the part is %+v, %v", d, err)
	}
	if it := d.Items[0]; it.Change.Change != "" || !it.Datetime.IsZero() {
		t.Errorf("the resource is %+v", it)
	}
	for _, want := range []string{
		`h:baseline="true" h:complete="true" h:count="1" h:restart="true" h:after="7-1700000000000007~41~7f" h:cursor="7-1700000000000007~42~7f"`,
		`h:position="5" h:change="` + string(twoEntries().Entries[0].Change.Change) + `" h:datetime="2023-11-14T22:13:20.000005Z"`,
	} {
		if !strings.Contains(part, want) {
			t.Errorf("%s is not in\n%s", want, part)
		}
	}
	d, err = resourcesync.ReadXML(strings.NewReader(end), resourcesync.Limits{})
	if err != nil || d.Capability != resourcesync.ChangeNotification || len(d.Items) != 0 ||
		!strings.Contains(end, `h:baseline="false" h:complete="false" h:count="1" h:positionDigest="aa" h:contentDigest="bb" h:after="7-1700000000000007~42~7f" h:cursor="7-1700000000000007"`) {
		t.Errorf("the end is %s, %v", end, err)
	}
}
