package oaipmh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/testutil/oaitest"
	"github.com/rshub/rshub/resourcesync"
)

// A world is a repository, whose clock the test moves, and its harvester.
type world struct {
	*oaitest.Repository
	*Harvest
	t     *testing.T
	clock time.Time
	state *State
	notes []string
	bad   []string
	held  map[string]string // resources of a hub: lastmod by URL
}

func newWorld(t *testing.T, r *oaitest.Repository) *world {
	w := &world{Repository: r, t: t, clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), state: new(State), held: map[string]string{}}
	r.Now = func() time.Time { return w.clock }
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	w.Harvest = &Harvest{
		Repository: &Repository{Getter: &harvest.Getter{Client: http.DefaultClient, Tries: 2}, URL: s.URL + "/oai?key=SECRET"},
		Loc:        "https://a.example/{local}",
		Note:       func(s string) { w.notes = append(w.notes, s) },
		Bad:        func(b *BadRecord) { w.bad = append(w.bad, b.Error()) },
	}
	return w
}

func (w *world) wait(d time.Duration) { w.clock = w.clock.Add(d) }

// full lists all resources, and returns the doubts about the list.
func (w *world) full() (doubts []string, err error) {
	held := map[string]string{}
	for e, err := range w.Resources(w.t.Context(), w.state) {
		if _, ok := errors.AsType[*BadRecord](err); ok {
			doubts = append(doubts, err.Error())
			continue
		}
		if _, ok := errors.AsType[*UncertainList](err); ok {
			doubts = append(doubts, err.Error())
			continue
		}
		if err != nil {
			return doubts, err
		}
		held[e.Change.Loc] = e.Change.Lastmod.Format(time.RFC3339)
	}
	if len(doubts) == 0 {
		w.held = held
	} else {
		maps.Copy(w.held, held)
	}
	w.keep(w.state)
	return doubts, nil
}

// news harvests changes, and returns their number.
func (w *world) news() (int, error) {
	w.t.Helper()
	changes, next, err := w.News(w.t.Context(), w.state)
	if err != nil {
		return 0, err
	}
	for _, c := range changes {
		if err := c.Validate(); err != nil {
			w.t.Errorf("invalid change: %v", err)
		}
		if delete(w.held, c.Loc); c.Change != resourcesync.Deleted {
			w.held[c.Loc] = c.Lastmod.Format(time.RFC3339)
		}
	}
	w.keep(next)
	return len(changes), nil
}

// keep stores a state as a file would.
func (w *world) keep(st *State) {
	b, err := json.Marshal(st)
	w.state = new(State)
	if err = errors.Join(err, json.Unmarshal(b, w.state)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) want(n, got int, err error, locs ...string) {
	w.t.Helper()
	if err != nil || n >= 0 && n != got {
		w.t.Errorf("got %d changes, error %v, want %d", got, err, n)
	}
	want := map[string]bool{}
	for _, l := range locs {
		want["https://a.example/"+l] = true
	}
	for loc := range w.held {
		if !want[loc] {
			w.t.Errorf("harvester has %s", loc)
		}
		delete(want, loc)
	}
	for loc := range want {
		w.t.Errorf("harvester lacks %s", loc)
	}
}

func (w *world) fill(n int) (locs []string) {
	for i := range n {
		id := fmt.Sprintf("%02d", i)
		w.PutAt("oai:x:"+id, "https://a.example/"+id, "one", w.clock.Add(-time.Duration(100-i)*time.Hour))
		locs = append(locs, id)
	}
	return locs
}

func TestHarvest(t *testing.T) {
	for _, days := range []bool{false, true} {
		t.Run(fmt.Sprint("days=", days), func(t *testing.T) {
			w := newWorld(t, &oaitest.Repository{Days: days})
			if _, _, err := w.News(t.Context(), w.state); !errors.Is(err, ErrNeedsList) {
				t.Errorf("News() without a state = %v, want ErrNeedsList", err)
			}
			locs := w.fill(12)
			_, err := w.full()
			w.want(0, 0, err, locs...)
			w.wait(20 * time.Minute)
			w.Put("oai:x:a/b c", "", "")
			w.Delete("oai:x:03")
			w.Put("oai:x:04", "", "changed")
			n, err := w.news()
			locs = append(slices.Delete(locs, 3, 4), "a/b%20c")
			w.want(3, n, err, locs...)

			// A change within the same granule, after the window was read.
			w.Put("oai:x:04", "", "changed again")
			w.wait(time.Second)
			n, err = w.news()
			if n == 0 {
				t.Error("second change within one datestamp was missed")
			}
			w.want(-1, n, err, locs...)

			w.wait(24 * time.Hour)
			_, _ = w.news()
			for range 3 { // nothing is repeated
				w.wait(15 * time.Minute)
				n, err = w.news()
				w.want(0, n, err, locs...)
			}
			w.wait(15 * time.Minute)
			w.PutAt("oai:x:late", "", "", w.clock.Add(-16*time.Minute)) // from a long transaction
			n, err = w.news()
			w.want(1, n, err, append(locs, "late")...)
		})
	}
}

// Records that are dated back further widen the next window. A full list finds those before every
// window.
func TestHarvestDatedBack(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{})
	locs := w.fill(3)
	_, err := w.full()
	w.want(0, 0, err, locs...)
	for i := range 10 {
		w.wait(15 * time.Minute)
		lag := time.Duration(4+3*i) * time.Minute
		loc := fmt.Sprint("late", i)
		w.Put(fmt.Sprint("oai:x:now", i), "", "")
		w.PutAt("oai:x:"+loc, "", "", w.clock.Add(-15*time.Minute-lag))
		locs = append(locs, loc, fmt.Sprint("now", i))
		_, err = w.news()
		w.want(-1, 0, err, locs...)
	}
	w.wait(time.Minute)
	_, _ = w.news() // repetitions of the wider overlap
	w.wait(time.Hour)
	w.PutAt("oai:x:ages", "", "", w.clock.Add(-1000*time.Hour))
	n, err := w.news()
	w.want(0, n, err, locs...)
	_, err = w.full()
	w.want(0, 0, err, append(locs, "ages")...)
}

func TestHarvestMetadata(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{})
	w.Loc = Metadata
	w.Put("oai:x:1", "https://a.example/one", "")
	w.Put("oai:x:2", "not a URL", "")
	doubts, err := w.full()
	w.want(0, 0, err, "one")
	if len(doubts) != 1 || !strings.Contains(doubts[0], `record 2 ("oai:x:2"): the metadata has no URL`) {
		t.Errorf("got doubts %q", doubts)
	}
}

func TestHarvestRecordURL(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{})
	w.Loc = ""
	w.Put("oai:x:1&2", "", "")
	if _, err := w.full(); err != nil {
		t.Fatal(err)
	}
	for loc := range w.held {
		if !strings.HasSuffix(loc, "/oai?identifier=oai%3Ax%3A1%262&key=SECRET&metadataPrefix=oai_dc&verb=GetRecord") {
			t.Errorf("got resource %s", loc)
		}
	}
}

// Whatever a repository does, no resource is considered deleted because of an incomplete list.
func TestHarvestMisbehaving(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults oaitest.Faults
		want   string // in the doubt or the error; empty means no error
		note   string
	}{
		{"well-behaved", oaitest.Faults{}, "", ""},
		{"busy", oaitest.Faults{Busy: 1}, "", ""},
		{"tokens that expire", oaitest.Faults{ExpireAfter: 2}, "the list was restarted, and expired again", ""},
		{"a token that expires once", oaitest.Faults{ExpireAfter: 2, Expire: 1, BadRecord: true}, "record 6: record has no identifier", "the list was restarted: the repository answers badResumptionToken"},
		{"a token that expires once, by HTTP", oaitest.Faults{ExpireAfter: 2, Expire: 1, ErrorStatus: 422}, "", "started from scratch"},
		{"no records, by HTTP", oaitest.Faults{NoMatchAfter: 2, ErrorStatus: 404}, "got 10 records, want about 12", ""},
		{"a token that repeats", oaitest.Faults{RepeatToken: true}, "part 3 has the same records", ""},
		{"a part that repeats", oaitest.Faults{SamePart: true}, "part 2 has the same records", ""},
		{"an early end", oaitest.Faults{EndEarly: 1}, "", "early"},
		{"a later early end", oaitest.Faults{EndEarly: 2}, "got 10 records, want about 12", ""},
		{"an early end of unknown size", oaitest.Faults{EndEarly: 2, NoSize: true}, "the last part has no empty resumptionToken", ""},
		{"no more records", oaitest.Faults{NoMatchAfter: 2}, "got 10 records, want about 12", ""},
		{"no more records, of unknown size", oaitest.Faults{NoMatchAfter: 2, NoSize: true}, "part 3 has no records according to the repository", ""},
		{"no last token", oaitest.Faults{NoEmptyToken: true}, "the last part has no empty resumptionToken", ""},
		{"one answer is cut off", oaitest.Faults{Cut: 2}, "", ""},
		{"all are cut off", oaitest.Faults{Cut: 100}, "unexpected end", ""},
		{"a page", oaitest.Faults{Page: "<html><body>down for maintenance</body></html>"}, "this is a web page (HTML)", ""},
		{"nothing", oaitest.Faults{Page: " "}, "empty response", ""},
		{"neither a list nor an error", oaitest.Faults{Page: noList}, "has neither a list nor an error", ""},
		{"bad records", oaitest.Faults{BadRecord: true}, "record 6: record has no identifier", ""},
		{"datestamps of now", oaitest.Faults{StampNow: true}, "", ""},
		{"no headers", oaitest.Faults{Headless: "badVerb"}, "", ""},
		{"no headers, by HTTP", oaitest.Faults{Headless: "501"}, "", ""},
		{"no headers, and a token that repeats", oaitest.Faults{Headless: "404", RepeatToken: true}, "part 3 has the same records", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, &oaitest.Repository{})
			w.Harvest.Repository.Getter.Tries = 1
			if test.faults.Busy > 0 {
				w.Harvest.Repository.Getter.Tries = 2
			}
			locs := w.fill(12)
			_, err := w.full()
			w.want(0, 0, err, locs...)
			before := *w.state
			w.Misbehave(test.faults)
			doubts, err := w.full()
			if test.note == "early" { // a first part without a token is a complete list, because the size is unknown
				if len(w.held) != 5 {
					t.Errorf("harvester has %d resources", len(w.held))
				}
				return
			}
			w.want(0, 0, nil, locs...)
			said := strings.Join(doubts, "\n") + fmt.Sprint(err)
			if test.want == "" && said != "<nil>" || !strings.Contains(said, test.want) || strings.Contains(said, "SECRET") {
				t.Errorf("got error %s\nwant %s", said, test.want)
			}
			if err != nil && fmt.Sprint(before) != fmt.Sprint(*w.state) {
				t.Error("state changed")
			}
		})
	}
}

// noList is the response of a repository without its database.
const noList = `<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><responseDate>2026-03-01T13:00:00Z</responseDate><request verb="ListRecords">http://a.example/oai</request></OAI-PMH>`

func TestNewsMisbehaving(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults oaitest.Faults
		want   string // in the error; empty means no error
		note   string
	}{
		{"busy", oaitest.Faults{Busy: 1}, "", ""},
		{"a token that expires once", oaitest.Faults{ExpireAfter: 1, Expire: 1}, "", ""},
		{"tokens that last for two parts", oaitest.Faults{ExpireAfter: 2}, "", "halving the window"},
		{"tokens that never last", oaitest.Faults{ExpireAfter: 1}, "", "halving the window"},
		{"a token that repeats", oaitest.Faults{RepeatToken: true}, "has the same records", ""},
		{"an early end", oaitest.Faults{EndEarly: 2}, "got 10 records, want", ""},
		{"no more records", oaitest.Faults{NoMatchAfter: 2}, "got 10 records, want", ""},
		{"no last token", oaitest.Faults{NoEmptyToken: true}, "", "no empty resumptionToken"},
		{"no headers", oaitest.Faults{Headless: "badVerb"}, "", ""},
		{"days only", oaitest.Faults{RefuseTimes: true}, "", "using days"},
		{"cut off", oaitest.Faults{Cut: 100}, "unexpected end", ""},
		{"neither a list nor an error", oaitest.Faults{Page: noList}, "has neither a list nor an error", ""},
		{"datestamps of now", oaitest.Faults{StampNow: true}, "seem to be the time of the request", "time of the request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, &oaitest.Repository{})
			locs := w.fill(30)
			_, err := w.full()
			w.want(0, 0, err, locs...)
			w.Put("", "", "") // records that look the same
			w.Put(" ", "", "")
			for i := range 14 {
				w.wait(time.Minute)
				w.Put(fmt.Sprintf("oai:x:%02d", i), "", "changed")
				w.Put(fmt.Sprintf("oai:x:new%d", i), "", "")
				w.Put(fmt.Sprintf("oai:x:%03000d", i), "", "") // too long for a URL
			}
			w.Delete("oai:x:29")
			w.wait(time.Minute)
			w.Misbehave(test.faults)
			_, err = w.news()
			if !strings.Contains(strings.Join(w.notes, "\n"), test.note) {
				t.Errorf("got notes %q", w.notes)
			}
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got error %v, want %s", err, test.want)
				}
				w.want(0, 0, nil, locs...)
				w.Misbehave(oaitest.Faults{}) // failed changes are not lost
				w.bad = nil
				_, err = w.news()
			}
			locs = locs[:29]
			for i := range 14 {
				locs = append(locs, fmt.Sprint("new", i))
			}
			w.want(-1, 0, err, locs...)
			if len(w.bad) != 14+2 {
				t.Errorf("got %d bad records, want each once", len(w.bad))
			}
			for i := range 14 {
				if loc := fmt.Sprintf("https://a.example/%02d", i); w.held[loc] < "2026-03-01T12:01" {
					t.Errorf("lastmod of %s = %s, want at least 2026-03-01T12:01", loc, w.held[loc])
				}
			}
		})
	}
}

// A token that leads to no records may have expired. If the number of records is unknown, the next
// window starts where this one started.
func TestNewsOfUnknownSize(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{})
	locs := w.fill(3)
	_, err := w.full()
	w.want(0, 0, err, locs...)
	for i := range 12 {
		w.wait(10 * time.Minute)
		loc := fmt.Sprint("new", i)
		w.Put("oai:x:"+loc, "", "")
		locs = append(locs, loc)
	}
	w.wait(time.Minute)
	w.Misbehave(oaitest.Faults{NoMatchAfter: 1, NoSize: true})
	n, err := w.news()
	w.want(5, n, err, locs[:8]...)
	w.wait(10 * time.Minute)
	w.Misbehave(oaitest.Faults{})
	n, err = w.news()
	w.want(7, n, err, locs...)
	w.wait(10 * time.Minute)
	n, err = w.news()
	w.want(0, n, err, locs...)
}

// A list may have a record twice, because it changes during the listing, and in any order if
// several servers answer. The newest datestamp counts, even for a deletion.
func TestNewsTwice(t *testing.T) {
	header := func(at, status string) string {
		return fmt.Sprintf(`<header%s><identifier>oai:x:1</identifier><datestamp>2026-03-01T%sZ</datestamp></header>`, status, at)
	}
	old, deleted := header("11:00:00", ""), header("11:30:00", ` status="deleted"`)
	for _, list := range []string{old + deleted, deleted + old} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := `<Identify><granularity>YYYY-MM-DDThh:mm:ssZ</granularity></Identify>`
			if r.URL.Query().Get("verb") != "Identify" {
				body = "<ListIdentifiers>" + list + "</ListIdentifiers>"
			}
			fmt.Fprintf(w, `<OAI-PMH><responseDate>2026-03-01T12:00:00Z</responseDate>%s</OAI-PMH>`, body)
		}))
		defer s.Close()
		h := &Harvest{Repository: &Repository{Getter: &harvest.Getter{Client: http.DefaultClient}, URL: s.URL}, Loc: "https://a.example/{local}"}
		at := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
		changes, _, err := h.News(t.Context(), &State{Identity: Identity{Granularity: Seconds, Deleted: DeletedNo}, Low: at})
		if err != nil || len(changes) != 1 || changes[0].Change != resourcesync.Deleted {
			t.Errorf("News() = %+v, %v, want one deletion", changes, err)
		}
	}
}

// A repository whose clock was ahead has windows in the future. When the clock is set back, all
// resources must be listed: changes until that future are in no window.
func TestNewsClockBack(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{})
	locs := w.fill(3)
	_, err := w.full()
	w.want(0, 0, err, locs...)
	w.wait(24 * time.Hour)
	n, err := w.news()
	w.want(0, n, err, locs...)
	w.wait(-minOverlap) // no change within the overlap is missed
	w.Put("oai:x:a", "", "")
	w.wait(time.Minute)
	n, err = w.news()
	w.want(1, n, err, append(locs, "a")...)
	w.wait(-23 * time.Hour)
	w.Put("oai:x:b", "", "")
	w.wait(time.Minute)
	if _, err := w.news(); !errors.Is(err, ErrNeedsList) {
		t.Errorf("News() error = %v, want ErrNeedsList", err)
	}
	_, err = w.full()
	w.want(0, 0, err, append(locs, "a", "b")...)
	w.wait(time.Hour)
	w.Put("oai:x:c", "", "")
	w.wait(time.Minute)
	n, err = w.news()
	w.want(-1, n, err, append(locs, "a", "b", "c")...)
}

// A repository that was replaced, or that has older records than before, is listed from scratch.
func TestNewsOfReplacedRepository(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{Earliest: "2020-01-01T00:00:00Z"})
	w.fill(1)
	_, err := w.full()
	w.Repository.Earliest = "2021-01-01T00:00:00Z" // its oldest record was changed
	n, err2 := w.news()
	w.want(0, n, errors.Join(err, err2), "00")
	w.Repository.Earliest = "2010-01-01T00:00:00Z"
	if _, err := w.news(); !errors.Is(err, ErrNeedsList) {
		t.Errorf("News() error = %v, want ErrNeedsList", err)
	}
	w.Repository.Earliest, w.Repository.Deleted = "2020-01-01T00:00:00Z", "no"
	if _, err := w.news(); !errors.Is(err, ErrNeedsList) {
		t.Errorf("News() error = %v, want ErrNeedsList", err)
	}
	if requests := strings.Join(w.Requests(), "\n"); !strings.Contains(requests, "key=SECRET") || strings.Contains(requests, "from=1990") {
		t.Errorf("got requests %s", requests)
	}
}

// A list whose token leads back is abandoned, even if its parts differ.
func TestListTokens(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		fmt.Fprintf(w, `<OAI-PMH><ListIdentifiers><header><identifier>%d</identifier></header><resumptionToken>%d</resumptionToken></ListIdentifiers></OAI-PMH>`, n, n%4)
	}))
	defer s.Close()
	r := &Repository{Getter: &harvest.Getter{Client: http.DefaultClient}, URL: s.URL}
	count := 0
	for _, err := range r.List(t.Context(), new(List), Seconds, Selection{Prefix: "oai_dc"}) {
		if count++; err == nil {
			continue
		}
		if _, ok := errors.AsType[*BrokenList](err); !ok || count != 6 || !strings.Contains(err.Error(), "part 5 repeats the resumptionToken") {
			t.Errorf("after %d records: got error %v", count-1, err)
		}
	}
	if n != 5 {
		t.Errorf("got %d requests", n)
	}
}

func TestIdentify(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{Days: true, Deleted: "transient"})
	id, err := w.Harvest.Repository.Identify(t.Context())
	if err != nil || id.Name != "Test" || id.Granularity != Days || id.Deleted != DeletedTransient || id.Earliest != "1990-01-01" || !strings.HasSuffix(id.BaseURL, "/oai") {
		t.Errorf("Identify() = %+v, %v, want the identity in the answer", id, err)
	}
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if _, err := (&Repository{Getter: w.Harvest.Repository.Getter, URL: s.URL}).Identify(t.Context()); err == nil || !strings.Contains(err.Error(), "the answer is 404") {
		t.Errorf("Identify() error = %v, want it to name the status 404", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Harvest.Repository.Identify(ctx); err == nil {
		t.Error("got no error after the end")
	}
}

func TestTemplate(t *testing.T) {
	for template, want := range map[Template]string{
		"https://a.example/{identifier}":       "https://a.example/oai:x.org:a%20b/c%3F",
		"https://a.example/abs/{local}":        "https://a.example/abs/a%20b/c%3F",
		"https://bücher.example/{local}":       "https://xn--bcher-kva.example/a%20b/c%3F",
		"https://a.example/?id={identifier}&x": "https://a.example/?id=oai%3Ax.org%3Aa+b%2Fc%3F&x",
	} {
		if err := template.Check(); err != nil {
			t.Errorf("Template %s: Check() = %v, want nil", template, err)
		}
		if loc, rule := template.locOf(nil, "", &Record{Identifier: "oai:x.org:a b/c?"}); loc != want || rule != "" {
			t.Errorf("Template %s: locOf() = %s (%s)", template, loc, rule)
		}
	}
	for _, template := range []Template{"https://a.example/", "{identifier}/x y", "https://a.example/{identifier}{other}"} {
		if err := template.Check(); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("Template %s: Check() = %v, want ErrInvalid", template, err)
		}
	}
	if loc, _ := Template("https://a.example/{local}").locOf(nil, "", &Record{Identifier: "../.."}); loc != "https://a.example/%2E%2E/%2E%2E" {
		t.Errorf("locOf() of dots = %s, want them escaped", loc)
	}
}

// Records name their sets as collections, at the URL that the repository states, and never at the
// one with the secret.
func TestCollections(t *testing.T) {
	w := newWorld(t, &oaitest.Repository{})
	w.Put("oai:a.example:1", "", "one")
	w.wait(time.Hour)
	var links []resourcesync.Link
	for e, err := range w.Resources(t.Context(), w.state) {
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, e.Change.Links...)
	}
	w.wait(time.Hour)
	w.Delete("oai:a.example:1")
	w.wait(time.Hour)
	changes, _, err := w.News(t.Context(), w.state)
	if err != nil || len(changes) != 1 || changes[0].Change != resourcesync.Deleted {
		t.Fatalf("News() = %+v, %v, want one deletion", changes, err)
	}
	links = append(links, changes[0].Links...)
	if len(links) != 2 {
		t.Fatalf("got links %+v", links)
	}
	for _, l := range links {
		if want := "?metadataPrefix=oai_dc&set=all&verb=ListIdentifiers"; l.Rel != "collection" || !strings.HasSuffix(l.Href, want) || strings.Contains(l.Href, "SECRET") {
			t.Errorf("got link %+v, want %s", l, want)
		}
	}
}

func FuzzReadPart(f *testing.F) {
	f.Add([]byte(`<OAI-PMH xmlns="x"><responseDate>2026-01-01T00:00:00Z</responseDate><ListRecords><record><header status="deleted"><identifier>a</identifier><datestamp>2026-01-01</datestamp></header>
		<metadata><dc><identifier>https://a.example/1</identifier><x y="z">&amp;</x></dc></metadata></record><resumptionToken completeListSize="7" cursor="0">t&amp;</resumptionToken></ListRecords></OAI-PMH>`))
	f.Add([]byte(`<?xml version="1.0"?><o:OAI-PMH xmlns:o="x" xmlns:d="y"><o:ListRecords ><o:record><o:header><o:identifier>a&amp;"b</o:identifier></o:header>
		<!-- &nbsp; --><?p &nbsp;?><o:metadata d:a="&lt;&eacute;"><![CDATA[&nbsp;<!--]]>&nbsp;&#65;</o:metadata></o:record></o:ListRecords></o:OAI-PMH>`))
	f.Add([]byte(`<?xml version="0"?>`))
	f.Add([]byte("\ufeff<OAI-PMH><error code=\"badArgument\">x\x00\xff</error></OAI-PMH>"))
	f.Add([]byte(`<OAI-PMH><Identify><granularity>YYYY-MM-DDThh:mm:ssZ</granularity><description><a/></description></Identify></OAI-PMH>`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, err := readPart(bytes.NewReader(doc), true)
		if err != nil {
			if !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, resourcesync.ErrTooLarge) {
				t.Errorf("readPart() error = %v, want ErrInvalid or ErrTooLarge", err)
			}
			return
		}
		for i := range p.records {
			if rec := &p.records[i]; rec.Identifier == "" && rec.bad == "" || len(rec.URLs) > maxURLs {
				t.Errorf("got record %+v", rec)
			} else if rec.text != nil {
				wantAnswer(t, rec.frame.response(&Identity{}, "oai_dc", rec), rec)
			}
		}
		for n := range len(bytes.TrimRight(doc, " \t\r\n\x00\x01")) {
			if n%7 == 0 && n < 2000 && bytes.HasSuffix(bytes.TrimSpace(doc), []byte("</OAI-PMH>")) && bytes.Count(doc, []byte("</OAI-PMH>")) == 1 && !bytes.Contains(doc[:len(doc)-10], []byte("<!")) {
				if _, err := readPart(bytes.NewReader(doc[:n]), false); err == nil {
					t.Errorf("readPart() accepts %d bytes of a longer response", n)
				}
			}
		}
	})
}
