package relay_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/relay"
)

// An invenio answers like the OAI-PMH server of InvenioRDM and Zenodo (invenio-oaiserver 6.0): it
// sends every error with status 422, its tokens expire after a minute, it has pages of ten records,
// and deleted records vanish without a trace. If a page ends with the last record, an empty page
// follows.
type invenio struct {
	now     func() time.Time
	records map[string]time.Time // when each was updated
	slow    time.Duration        // delay of the next request for a page, once
}

func (s *invenio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const page, form = 10, "2006-01-02T15:04:05Z"
	fail := func(code, text string) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><responseDate>%s</responseDate><request>http://%s/oai2d</request><error code="%s">%s</error></OAI-PMH>`, s.now().Format(form), r.Host, code, text)
	}
	q := r.URL.Query()
	verb, body := q.Get("verb"), ""
	switch {
	case r.URL.Path != "/oai2d":
		http.NotFound(w, r)
		return
	case verb == "Identify":
		body = "<repositoryName>InvenioRDM</repositoryName><baseURL>http://" + r.Host + "/oai2d</baseURL><protocolVersion>2.0</protocolVersion><adminEmail>info@inveniosoftware.org</adminEmail><earliestDatestamp>2026-01-01T00:00:00Z</earliestDatestamp><deletedRecord>no</deletedRecord><granularity>YYYY-MM-DDThh:mm:ssZ</granularity>"
	case verb != "ListIdentifiers":
		fail("badVerb", "Invalid data")
		return
	default:
		from, number := q.Get("from"), 1
		if token := q.Get("resumptionToken"); token != "" {
			fields := strings.Split(token, "/")
			made, err := time.Parse(form, fields[2])
			if err != nil || s.now().Add(s.slow).Sub(made) > time.Minute {
				s.slow = 0
				fail("badResumptionToken", "The value of the resumptionToken argument is invalid or expired.")
				return
			}
			from = fields[0]
			fmt.Sscan(fields[1], &number)
		}
		var ids []string
		for _, id := range slices.Sorted(maps.Keys(s.records)) {
			if s.records[id].Format(form) >= from {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			fail("noRecordsMatch", "")
			return
		}
		for _, id := range ids[(number-1)*page : min(number*page, len(ids))] {
			body += fmt.Sprintf("<header><identifier>oai:rdm.example.org:%s</identifier><datestamp>%s</datestamp><setSpec>community-all</setSpec></header>\n", id, s.records[id].Format(form))
		}
		if next := number*page <= len(ids); next || number > 1 {
			token := ""
			if next {
				token = fmt.Sprintf("%s/%d/%s", from, number+1, s.now().Format(form))
			}
			body += fmt.Sprintf(`<resumptionToken expirationDate="%s" cursor="%d" completeListSize="%d">%s</resumptionToken>`, s.now().Add(time.Minute).Format(form), (number-1)*page, len(ids), token)
		}
	}
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, "<?xml version='1.0' encoding='UTF-8'?>\n<OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\"><responseDate>%s</responseDate><request verb=\"%[2]s\">http://%[3]s/oai2d</request><%[2]s>%[4]s</%[2]s></OAI-PMH>\n", s.now().Format(form), verb, r.Host, body)
}

// The recipe for InvenioRDM works: the first poll, one without changes, a token that expires in a
// window and in a comparison, and a deleted record.
func TestInvenio(t *testing.T) {
	s := &invenio{records: map[string]time.Time{}}
	w := newWorld(t, s)
	s.now = func() time.Time { return w.clock }
	var all []string
	put := func(id string) {
		s.records[id] = w.clock
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	for i := range 30 { // the last page is empty
		put(fmt.Sprintf("r%02d", i))
	}
	w.clock = w.clock.Add(time.Hour)
	source, err := relay.Find(t.Context(), w.getter(), w.url+"/oai2d")
	if err != nil || source.Repository == nil {
		t.Fatalf("Find() = %+v, %v, want a repository", source, err)
	}
	source.Repository.Loc = "https://a.example/{local}"
	w.open(&relay.State{Source: source})
	if res := w.pollWant("compared 30 0 0"); !res.Complete {
		t.Errorf("Poll() = %+v, want complete", res)
	}
	w.clock = w.clock.Add(15 * time.Minute)
	w.pollWant("changes 0 0 0")
	w.notes = nil

	put("new")
	put("r07")
	w.clock = w.clock.Add(15 * time.Minute)
	w.pollWant("changes 0 2 0")

	for i := range 25 {
		put(fmt.Sprintf("s%02d", i))
	}
	w.clock = w.clock.Add(15 * time.Minute)
	s.slow = time.Hour
	w.pollWant("changes 0 25 0")

	delete(s.records, "r03")
	w.clock = w.clock.Add(25 * time.Hour)
	s.slow = time.Hour
	if res := w.pollWant("compared 0 0 0"); res.Kept != 1 {
		t.Errorf("Poll() = %+v, want 1 kept", res)
	}
	if len(w.notes) != 1 || !strings.Contains(w.notes[0], "the list was restarted: the repository answers badResumptionToken") {
		t.Errorf("got notes %q, want one about the token", w.notes)
	}
	w.clock = w.clock.Add(25 * time.Hour)
	w.pollWant("compared 0 0 1")
	all = slices.DeleteFunc(all, func(id string) bool { return id == "r03" })
	slices.Sort(all)
	w.wantLocs(all...)
}
