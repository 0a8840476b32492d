package oaipmh

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/testutil/oaitest"
)

// The error in a response counts, whatever its HTTP status is.
func TestErrorStatus(t *testing.T) {
	for _, status := range []int{200, 400, 404, 410, 422, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			w := newWorld(t, &oaitest.Repository{})
			locs := w.fill(3)
			_, err := w.full()
			w.want(0, 0, err, locs...)
			w.Misbehave(oaitest.Faults{ErrorStatus: status})
			w.wait(time.Hour)
			n, err := w.news()
			w.want(0, n, err, locs...)
			w.Put("oai:x:new", "", "")
			w.wait(time.Minute)
			n, err = w.news()
			w.want(1, n, err, append(locs, "new")...)
			w.Misbehave(oaitest.Faults{ErrorStatus: status, RefuseTimes: true})
			w.wait(time.Hour)
			n, err = w.news()
			w.want(1, n, err, append(locs, "new")...)
		})
	}
}

// answer returns a repository that answers every request but Identify with a status and a list of
// records.
func answer(t *testing.T, status int, list string) *Harvest {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `<Identify><granularity>YYYY-MM-DDThh:mm:ssZ</granularity></Identify>`
		if r.URL.Query().Get("verb") != "Identify" {
			w.WriteHeader(status)
			body = list
		}
		fmt.Fprintf(w, `<?xml version="1.0"?><!DOCTYPE OAI-PMH SYSTEM "x.dtd"><OAI-PMH><responseDate>2026-03-01T12:00:00Z</responseDate>%s</OAI-PMH>`, body)
	}))
	t.Cleanup(s.Close)
	return &Harvest{Repository: &Repository{Getter: &harvest.Getter{Client: http.DefaultClient, Tries: 1}, URL: s.URL + "/oai"}, Loc: "https://a.example/{local}"}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		list   string
		want   string
		away   bool // whether the failure is an HTTP error
	}{
		{"error", 422, `<error code="cannotDisseminateFormat">no x</error>`, "the repository answers cannotDisseminateFormat: no x", false},
		{"error without text", 400, `<error code="badArgument"/>`, "the repository answers badArgument", false},
		{"list with a status", 404, "<ListIdentifiers/>", "/oai?…): the answer is 404", true},
		{"page with a status", 410, "</OAI-PMH><html>", "/oai?…): the answer is 410", true},
		{"comment with two hyphens", 200, "<ListIdentifiers><!-- x -><header><identifier>1</identifier></header><!-- y --></ListIdentifiers>", "not allowed in comments", false},
		{"declaration", 200, "<ListIdentifiers><!x <header><identifier>1</identifier></header>></ListIdentifiers>", "a declaration (<!) is not allowed here", false},
		{"declaration in an identifier", 200, "<ListIdentifiers><header><identifier>a<!x>b</identifier></header></ListIdentifiers>", "a declaration (<!) is not allowed here", false},
		{"quotation without an end", 200, `<ListIdentifiers><header x="></header><header><identifier>1</identifier></header><header y="></header></ListIdentifiers>`, "unescaped < inside quoted string", false},
		{"page", 200, "</OAI-PMH><html>", "/oai?…): element after the root element", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := answer(t, tt.status, tt.list)
			var err error
			for _, err = range h.Resources(t.Context(), new(State)) {
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if f, ok := errors.AsType[*outbound.Failure](err); ok != tt.away || ok && f.Status != tt.status {
				t.Errorf("got error %#v, want a Failure with status %d: %v", err, tt.status, tt.away)
			}
		})
	}
}

// A new record without a datestamp is published in every poll that lists it.
func TestNewsWithoutDatestamp(t *testing.T) {
	for name, header := range map[string]string{
		"empty":   "<identifier>oai:x:2</identifier><datestamp/>",
		"missing": "<identifier>oai:x:2</identifier>",
	} {
		t.Run(name, func(t *testing.T) {
			h := answer(t, 200, "<ListIdentifiers><header>"+header+"</header></ListIdentifiers>")
			var notes []string
			h.Note = func(s string) { notes = append(notes, s) }
			low := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
			st := &State{Identity: Identity{Granularity: Seconds, Deleted: DeletedNo}, Low: low, Recent: map[string]string{}, Since: low}
			for range 2 {
				changes, next, err := h.News(t.Context(), st)
				if err != nil || len(changes) != 1 || changes[0].Loc != "https://a.example/2" {
					t.Fatalf("News() = %+v, %v, want https://a.example/2", changes, err)
				}
				st = next
			}
			if want := `record 1 ("oai:x:2") has no datestamp`; len(notes) != 2 || !strings.Contains(notes[0], want) {
				t.Errorf("got notes %q, want %q in each poll", notes, want)
			}
		})
	}
}

// Text that is not well-formed damages only its record, and only if it names the record.
func TestDamage(t *testing.T) {
	record := func(id, metadata string) string {
		return "<record><header><identifier>oai:x:" + id + "</identifier><datestamp>2026-03-01T11:00:00Z</datestamp></header><metadata><dc><title>" + metadata + "</title></dc></metadata></record>"
	}
	for _, tt := range []struct {
		name, list string
		template   Template
		want       []string // locs, or rules that a record breaks
		note       string
	}{
		{"control character", record("1", "a\x03") + record("2", "b"), "", []string{"1", "2"}, `record 1 ("oai:x:1"): left out text of the metadata`},
		{"reference to one", record("1", "a&#3;") + record("2", "b"), "", []string{"1", "2"}, `record 1 ("oai:x:1"): left out text of the metadata`},
		{"bare ampersand", record("1", "Q&A") + record("2", "b"), "", []string{"1", "2"}, `record 1 ("oai:x:1"): left out text of the metadata`},
		{"byte", record("1", "it\x92s ]]>") + record("2", "b"), "", []string{"1", "2"}, `record 1 ("oai:x:1"): left out text of the metadata`},
		{"attribute", record("1", "<a b='&#x1F;'/>") + record("2", "b"), "", []string{"1", "2"}, `record 1 ("oai:x:1"): left out text of the metadata`},
		{"entity of HTML", record("1", "&eacute;") + record("2", "b"), "", []string{"1", "2"}, ""},
		{"status", strings.Replace(record("1", "a"), "<header>", `<header status="deleted&#1;">`, 1) + record("2", "b"), "", []string{"status is not well-formed XML", "2"}, ""},
		{"identifier with a control character", record("1\x01", "a") + record("2", "b"), "", []string{"identifier is not well-formed XML", "2"}, ""},
		{"identifier with surrogates", record("1&#55356;&#57118;", "a") + record("2", "b"), "", []string{"identifier is not well-formed XML", "2"}, ""},
		{"URL", record("1", "</title><identifier>https://a.example/1?a&b</identifier><title>") + record("2", "</title><identifier>https://a.example/2</identifier><title>"), Metadata,
			[]string{"its URL", "2"}, `record 1 ("oai:x:1"): left out text of the metadata`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := answer(t, 200, "<ListRecords>"+tt.list+"</ListRecords>")
			var notes []string
			if h.Note = func(s string) { notes = append(notes, s) }; tt.template != "" {
				h.Loc = tt.template
			}
			var got []string
			for e, err := range h.Resources(t.Context(), new(State)) {
				if b, ok := errors.AsType[*BadRecord](err); ok && !b.NoResource {
					got = append(got, b.Rule)
				} else if err != nil {
					t.Fatal(err)
				} else {
					got = append(got, strings.TrimPrefix(e.Change.Loc, "https://a.example/"))
				}
			}
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for c, err := range h.Contents(t.Context()) {
				if _, bad := errors.AsType[*BadRecord](err); err != nil && !bad {
					t.Fatal(err)
				}
				if err == nil {
					wantWellFormed(t, c.Text)
				}
			}
			if s := strings.Join(notes, "\n"); !strings.Contains(s, tt.note) || tt.note == "" && s != "" {
				t.Errorf("got notes %q, want %q", notes, tt.note)
			}
		})
	}
}

// A resumptionToken is sent back unchanged, whatever characters it has.
func TestTokenCharacters(t *testing.T) {
	const token = `a+b%2Bc&d=e/f?g#h ü"<'` + "`|{}[]^~\\"
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("key") != "a+b" || len(q["verb"]) != 1 {
			t.Errorf("got query %q", r.URL.RawQuery)
		}
		text, id := token, "1"
		if q.Has("resumptionToken") {
			got = append(got, q.Get("resumptionToken"))
			text, id = "", "2"
		}
		fmt.Fprintf(w, `<OAI-PMH><ListIdentifiers><header><identifier>oai:x:%s</identifier></header><resumptionToken> %s </resumptionToken></ListIdentifiers></OAI-PMH>`, id, escaped(text))
	}))
	defer s.Close()
	r := &Repository{Getter: &harvest.Getter{Client: http.DefaultClient}, URL: s.URL + "/oai?key=a%2Bb"}
	for _, err := range r.List(t.Context(), new(List), Seconds, Selection{Prefix: "oai_dc"}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []string{token}) {
		t.Errorf("got tokens %q, want %q once", got, token)
	}
}

// Datestamps with fractions and offsets are accepted, although the protocol has neither.
func TestDatestamps(t *testing.T) {
	want := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	for datestamp, want := range map[string]time.Time{
		"2026-03-01T11:00:00Z":           want,
		"2026-03-01T11:00:00.250Z":       want.Add(250 * time.Millisecond),
		"2026-03-01T16:30:00+05:30":      want,
		"2026-03-01T03:00:00.5-08:00":    want.Add(500 * time.Millisecond),
		"2026-03-01T11:00:00":            want,
		"2026-03-01T11:00Z":              want,
		"2026-03-01":                     time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		" 2026-03-01T11:00:00Z\n":        want,
		"2026-03-01T11:00:00.123456789Z": want.Add(123456 * time.Microsecond),
		"2026-02-30T11:00:00Z":           {},
		"yesterday":                      {},
	} {
		t.Run(datestamp, func(t *testing.T) {
			p, err := readPart(strings.NewReader("<OAI-PMH><ListIdentifiers><header><identifier>x</identifier><datestamp>"+datestamp+"</datestamp></header></ListIdentifiers></OAI-PMH>"), false)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.records[0].Time; !got.Truncate(time.Microsecond).Equal(want) {
				t.Errorf("got time %v, want %v", got, want)
			}
		})
	}
}
