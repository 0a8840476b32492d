package oaipmh

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/oaitest"
	"github.com/rshub/rshub/resourcesync"
)

func wantWellFormed(t *testing.T, answer []byte) {
	t.Helper()
	for dec := xml.NewDecoder(bytes.NewReader(answer)); ; {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in the answer %q", err, answer)
		}
	}
}

// wantAnswer checks that a response is a complete XML document, without the entities of HTML, and
// that a reader of the protocol finds the same record in it.
func wantAnswer(t *testing.T, answer []byte, rec *Record) {
	t.Helper()
	wantWellFormed(t, answer)
	list := bytes.ReplaceAll(answer, []byte("GetRecord"), []byte("ListRecords"))
	p, err := readPart(bytes.NewReader(list), false)
	if err != nil || len(p.records) != 1 || p.records[0].Print != rec.Print || strings.ReplaceAll(p.records[0].Identifier, "ListRecords", "GetRecord") != strings.ReplaceAll(rec.Identifier, "ListRecords", "GetRecord") {
		t.Fatalf("%v: got records %+v, want %+v:\n%s", err, p, rec, answer)
	}
}

// The content of a record is the response to GetRecord, except for the time of the response, and
// stays the same while the record does.
func TestContents(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{Parts: 2})
	contents := func() map[string]*Content {
		all := map[string]*Content{}
		for c, err := range w.Contents(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all[c.Change.Loc] = c
		}
		return all
	}
	w.Put("oai:x:1", "https://a.example/1", `"a" & <b> é`)
	w.Put("oai:x:2", "https://a.example/2", "two")
	w.Put("oai:x:3", "https://a.example/3", "three")
	w.wait(time.Hour)
	w.Delete("oai:x:2")
	first := contents()
	w.wait(time.Hour)
	w.Put("oai:x:3", "https://a.example/3", "another")
	second := contents()
	timeless := regexp.MustCompile("<responseDate>.*?</responseDate>|<request.*?</request>|^<.xml.*?>|\n")
	for loc, c := range second {
		if c.Change.Change == resourcesync.Deleted {
			if !strings.Contains(loc, "oai%3Ax%3A2") || c.Text != nil {
				t.Errorf("%s is deleted", loc)
			}
			continue
		}
		resp, err := http.Get(loc)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it is read
		if err != nil || timeless.ReplaceAllString(string(c.Text), "") != timeless.ReplaceAllString(string(want), "") {
			t.Errorf("%v: %s =\n%s, want\n%s", err, loc, c.Text, want)
		}
		if same := bytes.Equal(first[loc].Text, c.Text); same != strings.Contains(loc, "oai%3Ax%3A1") || same != (first[loc].Change.Hash == c.Change.Hash) || *c.Change.Length != int64(len(c.Text)) {
			t.Errorf("%s = %+v after %+v", loc, c.Change, first[loc].Change)
		}
	}
	if len(second) != 3 {
		t.Errorf("got contents %v", second)
	}
}

// A record without a URL is a *BadRecord, and missing records of a list are reported at its end.
func TestContentsGaps(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{Parts: 1})
	w.Put("oai:x:1", "https://a.example/1", "one")
	w.Put("oai:x:2", "https://a.example/2", "two")
	w.Misbehave(oaitest.Faults{BadRecord: true, NoEmptyToken: true})
	var bad, doubts, good int
	for _, err := range w.Contents(t.Context()) {
		_, isBad := errors.AsType[*BadRecord](err)
		_, isUncertain := errors.AsType[*UncertainList](err)
		switch {
		case isBad:
			bad++
		case isUncertain:
			doubts++
		case err == nil:
			good++
		default:
			t.Fatal(err)
		}
	}
	if bad != 2 || doubts != 1 || good != 2 {
		t.Errorf("got %d bad, %d doubts, %d good", bad, doubts, good)
	}
}
