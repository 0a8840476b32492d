package feed

import (
	"errors"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestParseBaselineCursor(t *testing.T) {
	want := BaselineCursor{Cursor{7, 1_700_000_000_000_000}, 42, 0}
	if got, err := ParseBaselineCursor(want.String()); got != want || err != nil || want.String() != "7-1700000000000000~42" {
		t.Errorf("ParseBaselineCursor(%[1]q) = %[2]v, %[3]v, want %[1]v", want, got, err)
	}
	for _, s := range []string{"", "~", "7", "7-8", "7-8~", "~9", "7-8~-1", "7-8~9~", "7-8~9~g", "7-8~9~9~9", "7-8~9~100000000", "7-8~ 9", "7-8~9007199254740992", "a-8~9", SinceBaseline} {
		if p, err := ParseBaselineCursor(s); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("ParseBaselineCursor(%q) = %v, %v, want ErrInvalid", s, p, err)
		}
	}
}

func FuzzParseBaselineCursor(f *testing.F) {
	f.Add("7-1700000000000000~42")
	f.Add("7-1700000000000000~42~a0b")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseBaselineCursor(s)
		if err != nil {
			return
		}
		if again, err := ParseBaselineCursor(p.String()); again != p || err != nil {
			t.Errorf("ParseBaselineCursor(%[1]q) = %[2]v, parsed again %[3]v, %[4]v, want %[2]v", s, p, again, err)
		}
	})
}

// encodeBaseline returns a part of a baseline with one resource, a "|", and the end of the
// baseline, in format f.
func encodeBaseline(f *Format, next string) string {
	e := &Entry{Cursor: Cursor{5, 1_700_000_000_000_005}, Change: twoEntries().Entries[0].Change}
	part := &BaselinePart{
		Set: "a", After: BaselineCursor{Cursor{7, 1_700_000_000_000_007}, 41, 0x7f}, Next: BaselineCursor{Cursor{7, 1_700_000_000_000_007}, 42, 0x7f}, Count: 1, Complete: true, Restart: true,
	}
	end := &BaselinePart{Set: "a", After: part.Next, Next: part.Next, Count: 1, End: true, PositionDigest: "aa", ContentDigest: "bb"}
	w := f.Baseline()
	text := w.Tail(w.Entry(w.Head(nil, part, next), e, true), part, next)
	w = f.Baseline()
	return string(w.Tail(w.Head(append(text, '|'), end, next), end, next))
}

func TestBaselineFormats(t *testing.T) {
	entry := string(twoEntries().Entries[0].AppendJSON(nil))
	entry = `{"position":5,"datetime":"2023-11-14T22:13:20.000005Z"` + entry[strings.Index(entry, `Z"`)+2:]
	for _, tt := range []struct {
		name   string
		format *Format
		next   string
		want   string
	}{
		{"JSON, pushed", JSON, "", `{"set":"a","baseline":true,"complete":true,"count":1,"restart":true,"after":"7-1700000000000007~41~7f","cursor":"7-1700000000000007~42~7f","resources":[` + entry + `]}|` +
			`{"set":"a","baseline":false,"complete":false,"count":1,"position":"aa","content":"bb","after":"7-1700000000000007~42~7f","cursor":"7-1700000000000007","changes":[]}`},
		{"JSON, page", JSON, "u", `{"set":"a","baseline":true,"complete":true,"count":1,"restart":true,"after":"7-1700000000000007~41~7f","cursor":"7-1700000000000007~42~7f","next":"u","resources":[` + entry + "]}\n|" +
			`{"set":"a","baseline":false,"complete":false,"count":1,"position":"aa","content":"bb","after":"7-1700000000000007~42~7f","cursor":"7-1700000000000007","next":"u","changes":[]}` + "\n"},
		{"NDJSON", NDJSON, "u", entry + "\n|"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := encodeBaseline(tt.format, tt.next); got != tt.want {
				t.Errorf("encoded baseline =\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
	if b, _, err := ReadBatch(strings.NewReader(strings.Split(encodeBaseline(JSON, ""), "|")[1]), resourcesync.Limits{}); err != nil || b.Cursor != b.After || b.Cursor.Position != 7 {
		t.Errorf("ReadBatch(end of a baseline) = %+v, %v, want no entries at position 7", b, err)
	}
}

func TestBaselineXML(t *testing.T) {
	part, end, _ := strings.Cut(encodeBaseline(XML, ""), "|")
	d, err := resourcesync.ReadXML(strings.NewReader(part), resourcesync.Limits{})
	if err != nil || d.Capability != baselineCapability || d.At.UnixMicro() != 1_700_000_000_000_007 || len(d.Items) != 1 {
		t.Fatalf("ReadXML(part) = %+v, %v", d, err)
	}
	if it := d.Items[0]; it.Change.Change != "" || !it.Datetime.IsZero() {
		t.Errorf("resource = %+v, want no change and no datetime", it)
	}
	for _, want := range []string{
		`h:baseline="true" h:complete="true" h:count="1" h:restart="true" h:after="7-1700000000000007~41~7f" h:cursor="7-1700000000000007~42~7f"`,
		`h:position="5" h:change="` + string(twoEntries().Entries[0].Change.Change) + `" h:datetime="2023-11-14T22:13:20.000005Z"`,
	} {
		if !strings.Contains(part, want) {
			t.Errorf("part lacks %s:\n%s", want, part)
		}
	}
	d, err = resourcesync.ReadXML(strings.NewReader(end), resourcesync.Limits{})
	if err != nil || d.Capability != resourcesync.ChangeNotification || len(d.Items) != 0 ||
		!strings.Contains(end, `h:baseline="false" h:complete="false" h:count="1" h:positionDigest="aa" h:contentDigest="bb" h:after="7-1700000000000007~42~7f" h:cursor="7-1700000000000007"`) {
		t.Errorf("ReadXML(%s) = %v, want an empty change notification with the members of the end", end, err)
	}
}
