package resourcesync

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// In whole seconds the fractions of all datetimes are cut off, and nothing else changes.
func TestWholeSeconds(t *testing.T) {
	for name, d := range golden() {
		for _, micros := range []bool{false, true} {
			ns := &Namespaces{Index: d.Index, Micros: micros, WholeSeconds: true}
			text := AppendXMLHeader(nil, &d.Header, ns)
			for i := range d.Items {
				text = AppendXMLItem(text, &d.Items[i], ns)
			}
			text = AppendXMLFooter(text, &d.Header)
			if strings.Contains(string(text), ".00012") {
				t.Errorf("%s has fractions: %s", name, text)
			}
			var exact, whole bytes.Buffer
			if err := d.WriteXML(&exact); err != nil {
				t.Fatal(err)
			}
			cut := *d
			cut.Items = append([]Item(nil), d.Items...)
			for _, at := range []*time.Time{&cut.From, &cut.Until, &cut.At, &cut.Completed} {
				*at = at.Truncate(time.Second)
			}
			for i := range cut.Items {
				it := &cut.Items[i]
				for _, at := range []*time.Time{&it.Lastmod, &it.Datetime, &it.From, &it.Until, &it.At, &it.Completed} {
					*at = at.Truncate(time.Second)
				}
				it.Links = append([]Link(nil), it.Links...)
				for j := range it.Links {
					it.Links[j].Modified = it.Links[j].Modified.Truncate(time.Second)
				}
			}
			if err := cut.WriteXML(&whole); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, whole.Bytes()) {
				t.Errorf("%s is\n%s\nwant\n%s", name, text, whole.Bytes())
			}
			if reflect.DeepEqual(exact.Bytes(), text) && name == "notification" {
				t.Errorf("%s has no fractions to cut", name)
			}
		}
	}
	// A time before the year 1970 is cut to the second before, too.
	early := time.Date(1969, 12, 31, 23, 59, 58, 999_999_999, time.UTC)
	item := AppendXMLItem(nil, &Item{Change: Change{Loc: "https://example.org/a", Lastmod: early}}, &Namespaces{WholeSeconds: true})
	if !strings.Contains(string(item), "<lastmod>1969-12-31T23:59:58Z</lastmod>") {
		t.Errorf("%s", item)
	}
}
