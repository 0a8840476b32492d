// Package oaitest implements an OAI-PMH 2.0 repository for tests.
//
// It follows the protocol unless a test injects faults. Responses of real repositories are in
// e2e/clients/testdata.
package oaitest

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Faults are deviations from the protocol. The zero value has none.
type Faults struct {
	Busy         int    // number of requests that first get 503 with Retry-After: 1
	ExpireAfter  int    // resumptionTokens for parts with higher numbers have expired; zero means never
	Expire       int    // number of tokens that expire so; zero means all
	RepeatToken  bool   // each part has the token of the first one
	SamePart     bool   // each part has the records of the first one, with a new token
	EndEarly     int    // number of parts after which a list ends; zero means at its end
	NoEmptyToken bool   // the last part has no resumptionToken
	NoMatchAfter int    // resumptionTokens for parts with higher numbers get noRecordsMatch; zero means none
	NoSize       bool   // completeListSize is absent
	Cut          int    // number of responses that are truncated
	Page         string // response to all list requests, such as HTML
	RefuseTimes  bool   // datestamps with a time of day get badArgument, contrary to Identify
	StampNow     bool   // each datestamp is the time of the request
	Headless     string // response to ListIdentifiers: badVerb, or an HTTP status
	ErrorStatus  int    // HTTP status of error responses; zero means 200
	BadRecord    bool   // each list has a record without an identifier, and one with bytes that are not UTF-8
}

// A Repository is an http.Handler. Its fields must not be modified while it serves requests.
type Repository struct {
	Days     bool             // whether datestamps are days
	Deleted  string           // no, transient or persistent; default: persistent
	Earliest string           // earliestDatestamp; default: 1990-01-01
	Parts    int              // number of records in a part; default: 5
	Now      func() time.Time // default: time.Now

	mu       sync.Mutex
	records  map[string]*record
	faults   Faults
	requests []string
}

type record struct {
	id, url, title string
	at             time.Time
	deleted        bool
}

// Put adds or changes a record. Its dc:identifier is url.
func (r *Repository) Put(id, url, title string) { r.PutAt(id, url, title, r.now()) }

// PutAt is Put with a datestamp.
func (r *Repository) PutAt(id, url, title string, at time.Time) {
	r.set(&record{id: id, url: url, title: title, at: at})
}

// Delete marks a record as deleted.
func (r *Repository) Delete(id string) { r.set(&record{id: id, at: r.now(), deleted: true}) }

func (r *Repository) set(rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records == nil {
		r.records = map[string]*record{}
	}
	r.records[rec.id] = rec
}

// Vanish removes a record without marking it as deleted.
func (r *Repository) Vanish(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.records, id)
}

// Misbehave sets the faults.
func (r *Repository) Misbehave(f Faults) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = f
}

// Requests returns the queries of the requests since the last call.
func (r *Repository) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.requests
	r.requests = nil
	return all
}

func (r *Repository) now() time.Time {
	if r.Now == nil {
		return time.Now().UTC()
	}
	return r.Now().UTC()
}

func (r *Repository) stamp(t time.Time) string {
	if r.Days {
		return t.UTC().Format("2006-01-02")
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// ServeHTTP serves a request of the protocol.
func (r *Repository) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req.URL.RawQuery)
	if r.faults.Busy > 0 {
		r.faults.Busy--
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	q := req.URL.Query()
	var body string
	switch verb := q.Get("verb"); verb {
	case "Identify":
		body = r.identify(req)
	case "ListIdentifiers", "ListRecords":
		if r.faults.Page != "" {
			_, _ = w.Write([]byte(r.faults.Page))
			return
		}
		if status, err := strconv.Atoi(r.faults.Headless); err == nil && verb == "ListIdentifiers" {
			w.WriteHeader(status)
			return
		}
		body = r.listLocked(verb, q.Get)
		if r.faults.Headless == "badVerb" && verb == "ListIdentifiers" {
			body = failure("badVerb", verb)
		}
	case "GetRecord":
		if body = failure("idDoesNotExist", q.Get("identifier")); r.records[q.Get("identifier")] != nil {
			body = "<GetRecord>" + r.text(r.records[q.Get("identifier")], true) + "</GetRecord>"
		}
	default:
		body = failure("badVerb", verb)
	}
	answer := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><responseDate>%s</responseDate><request>%s</request>%s</OAI-PMH>`,
		r.now().Format("2006-01-02T15:04:05Z"), escaped("http://"+req.Host+req.URL.Path), body)
	w.Header().Set("Content-Type", "text/xml")
	if strings.HasPrefix(q.Get("verb"), "List") && r.faults.Cut > 0 {
		r.faults.Cut--
		answer = answer[:len(answer)/2]
	}
	if strings.HasPrefix(body, "<error") && r.faults.ErrorStatus > 0 {
		w.WriteHeader(r.faults.ErrorStatus)
	}
	_, _ = w.Write([]byte(answer))
}

func (r *Repository) identify(req *http.Request) string {
	granularity, deleted, earliest := "YYYY-MM-DDThh:mm:ssZ", r.Deleted, r.Earliest
	if r.Days {
		granularity = "YYYY-MM-DD"
	}
	if deleted == "" {
		deleted = "persistent"
	}
	if earliest == "" {
		earliest = r.stamp(time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	return fmt.Sprintf(`<Identify><repositoryName>Test</repositoryName><baseURL>%s</baseURL><protocolVersion>2.0</protocolVersion><earliestDatestamp>%s</earliestDatestamp><deletedRecord>%s</deletedRecord><granularity>%s</granularity><description><baseURL>not this</baseURL></description></Identify>`,
		escaped("http://"+req.Host+req.URL.Path), earliest, deleted, granularity)
}

func failure(code, text string) string {
	return fmt.Sprintf(`<error code="%s">%s</error>`, code, escaped(text))
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// listLocked returns a part of a list. A token contains everything that the next part needs. The
// caller must hold r.mu.
func (r *Repository) listLocked(verb string, get func(string) string) string {
	from, until, number := get("from"), get("until"), 1
	if token := get("resumptionToken"); token != "" {
		parts := strings.Split(token, "|")
		n, err := strconv.Atoi(parts[len(parts)-1])
		if len(parts) != 4 || err != nil || get("metadataPrefix") != "" {
			return failure("badResumptionToken", token)
		}
		from, until, number = parts[0], parts[1], n
		if f := &r.faults; f.ExpireAfter > 0 && number > f.ExpireAfter {
			if f.Expire--; f.Expire == 0 {
				f.ExpireAfter = 0
			}
			return failure("badResumptionToken", "it has expired")
		}
		if after := r.faults.NoMatchAfter; after > 0 && number > after {
			return failure("noRecordsMatch", "")
		}
	} else if get("metadataPrefix") != "oai_dc" {
		return failure("cannotDisseminateFormat", get("metadataPrefix"))
	}
	if (r.Days || r.faults.RefuseTimes) && strings.Contains(from+until, "T") {
		return failure("badArgument", "from or until is not a day")
	}
	if r.faults.RepeatToken && number > 1 {
		number = 2
	}
	all := r.selected(from, until)
	if len(all) == 0 {
		return failure("noRecordsMatch", "")
	}
	size := r.Parts
	if size == 0 {
		size = 5
	}
	begin := min((number-1)*size, len(all))
	if r.faults.SamePart {
		begin = 0
	}
	end := min(begin+size, len(all))
	var b strings.Builder
	fmt.Fprintf(&b, "<%s>", verb)
	for _, rec := range all[begin:end] {
		b.WriteString(r.text(rec, verb == "ListRecords"))
	}
	if r.faults.BadRecord && number == 1 {
		b.WriteString("<header><datestamp>2026</datestamp></header><header><identifier>oai:x:\xff\x01</identifier></header>")
	}
	token := fmt.Sprintf("%s|%s|%s|%d", from, until, verb, number+1)
	attributes := fmt.Sprintf(` completeListSize="%d"`, len(all))
	if r.faults.NoSize {
		attributes = ""
	}
	switch {
	case r.faults.EndEarly == number:
	case end < len(all) || r.faults.SamePart:
		fmt.Fprintf(&b, "<resumptionToken%s>%s</resumptionToken>", attributes, token)
	case number > 1 && !r.faults.NoEmptyToken:
		fmt.Fprintf(&b, "<resumptionToken%s/>", attributes)
	}
	fmt.Fprintf(&b, "</%s>", verb)
	return b.String()
}

// selected returns the records of a time window, ordered by datestamp.
func (r *Repository) selected(from, until string) (all []*record) {
	for _, rec := range r.records {
		at := r.stamp(rec.at)
		if r.faults.StampNow {
			at = r.stamp(r.now())
		}
		if from != "" && at[:len(from)] < from || until != "" && at[:len(until)] > until {
			continue
		}
		all = append(all, rec)
	}
	slices.SortFunc(all, func(a, b *record) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	return all
}

func (r *Repository) text(rec *record, whole bool) string {
	at, status := rec.at, ""
	if r.faults.StampNow {
		at = r.now()
	}
	if rec.deleted {
		status = ` status="deleted"`
	}
	header := fmt.Sprintf("<header%s><identifier>%s</identifier><datestamp>%s</datestamp><setSpec>all</setSpec></header>", status, escaped(rec.id), r.stamp(at))
	switch {
	case !whole:
		return header
	case rec.deleted:
		return "<record>" + header + "</record>"
	}
	return fmt.Sprintf(`<record>%s<metadata><oai_dc:dc xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>%s</dc:title><dc:identifier>10.1/%s</dc:identifier><dc:identifier>%s</dc:identifier></oai_dc:dc></metadata></record>`,
		header, escaped(rec.title), escaped(rec.id), escaped(rec.url))
}
