package oaipmh

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"time"

	"github.com/rshub/rshub/internal/outbound"
)

const (
	maxEmptyParts = 10   // maximum number of parts in a row without a record
	maxSizeFactor = 10   // a list may have this many times the records that it announces
	sizeSlack     = 1000 // and this many more
	minSizeShare  = 0.9  // minimum share of the announced records
)

// A Selection selects the records to list.
type Selection struct {
	Prefix string    // metadataPrefix
	Set    string    // setSpec; empty means all records
	From   time.Time // of the datestamps, inclusive; zero means from the first record
	Until  time.Time // the same; zero means to the last record

	Records bool // list whole records, not only their headers. A repository that cannot list headers lists records in any case

	keepText bool // retain the text of the records; requires Records
	restart  bool // list everything once more if a resumptionToken expires
}

// An UncertainList means that a list may be incomplete, although nothing failed. The yielded records
// are correct.
type UncertainList struct {
	Reason    string
	Truncated bool // the repository says that the list ends, although its last part had a resumptionToken
}

// Error returns the reason.
func (d *UncertainList) Error() string { return "the list may be incomplete: " + d.Reason }

// A BrokenList means that a list is incomplete, and that continuing would not help.
type BrokenList struct{ Reason string }

// Error returns the reason.
func (b *BrokenList) Error() string { return "the list is incomplete: " + b.Reason }

// A BadRecord is a record that cannot be used. The list continues after it.
type BadRecord struct {
	Identifier string
	Number     int // in the list, from 1
	Rule       string
	NoResource bool   // the record is complete, but has no resource
	Datestamp  string // as the repository writes it; distinguishes records without an identifier
}

// Error names the record and the rule.
func (b *BadRecord) Error() string {
	if b.Identifier == "" {
		return fmt.Sprintf("record %d: %s", b.Number, b.Rule)
	}
	return fmt.Sprintf("record %d (%.200q): %s", b.Number, b.Identifier, b.Rule)
}

// key identifies records that look the same.
func (b *BadRecord) key() [sha256.Size]byte {
	return sha256.Sum256([]byte(b.Identifier + "\n" + b.Datestamp))
}

// A List is a list of records that is being read.
type List struct {
	Started time.Time // the repository's time when the list started; zero if unknown
	Count   int       // records so far
	Size    int       // estimate of the records by the repository; zero if unknown

	RestartErr error // why the list was restarted; nil if it was not

	damaged bool                      // whether a record with damaged metadata was reported
	bad     map[[sha256.Size]byte]int // numbers of records like a bad one that came before the restart; nil if not needed
}

// List lists the records of a selection. A record may come twice. A *BadRecord stands for one
// record. An *UncertainList comes last in the sequence. Every other error ends it. It is a *BrokenList, an
// *Error of the repository, or one of harvest.Getter. After the code badResumptionToken, the caller
// must start the list again. l is set from the first record on. If l.RestartErr is set, all records
// come once more, but only those *BadRecord that did not come before.
func (r *Repository) List(ctx context.Context, l *List, g Granularity, s Selection) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		if err := r.list(ctx, l, g, s, yield); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

var errStopped = errors.New("the caller stopped the iteration")

func (r *Repository) list(ctx context.Context, l *List, g Granularity, s Selection, yield func(*Record, error) bool) error {
	if !s.restart {
		return r.listOnce(ctx, l, g, s, yield)
	}
	l.bad = map[[sha256.Size]byte]int{}
	err := r.listOnce(ctx, l, g, s, func(rec *Record, err error) bool {
		if b, ok := errors.AsType[*BadRecord](err); ok && len(l.bad) < maxBad {
			l.bad[b.key()]++
		}
		return yield(rec, err)
	})
	if !hasCode(err, badResumptionToken) {
		return err
	}
	l.RestartErr, l.Count, l.Size = err, 0, 0
	return r.listOnce(ctx, l, g, s, func(rec *Record, err error) bool {
		if b, ok := errors.AsType[*BadRecord](err); ok && l.bad[b.key()] > 0 {
			l.bad[b.key()]--
			return true
		}
		return yield(rec, err)
	})
}

// maxBad limits the memory for bad records of a list that may be restarted.
const maxBad = 100_000

func (r *Repository) listOnce(ctx context.Context, l *List, g Granularity, s Selection, yield func(*Record, error) bool) error {
	if !s.Records && !r.noIdentifiers {
		err := r.listBy(ctx, "ListIdentifiers", l, g, s, yield)
		if !lacksVerb(err) || l.Count > 0 {
			return err
		}
		r.noIdentifiers = true
	}
	return r.listBy(ctx, "ListRecords", l, g, s, yield)
}

// lacksVerb reports whether an error may mean that a repository does not support a verb. Some
// repositories answer with an HTTP error.
func lacksVerb(err error) bool {
	f, ok := errors.AsType[*outbound.Failure](err)
	return hasCode(err, badVerb) || ok && f.Status != 0
}

func (r *Repository) listBy(ctx context.Context, verb string, l *List, g Granularity, s Selection, yield func(*Record, error) bool) error {
	arguments := url.Values{"verb": {verb}, "metadataPrefix": {s.Prefix}}
	if s.Set != "" {
		arguments.Set("set", s.Set)
	}
	if !s.From.IsZero() {
		arguments.Set("from", g.format(s.From))
	}
	if !s.Until.IsZero() {
		arguments.Set("until", g.format(s.Until))
	}
	tokens := map[[32]byte]bool{}
	parts := map[[32]byte]bool{}
	for number, empty := 1, 0; ; number++ {
		p, err := r.request(ctx, arguments, s.keepText)
		if hasCode(err, noRecordsMatch) && number == 1 {
			l.Started = p.responseDate
			return nil
		}
		if hasCode(err, noRecordsMatch) {
			if err := l.checkEnd(&part{hasToken: true}, number); err != nil || l.Size > 0 && l.Count >= l.Size {
				return err
			}
			return &UncertainList{Reason: fmt.Sprintf("part %d has no records according to the repository", number), Truncated: true}
		}
		if err == nil && !p.list {
			err = &BrokenList{"the response has neither a list nor an error"}
		}
		if err != nil {
			if number > 1 && !hasCode(err, badResumptionToken) {
				return fmt.Errorf("part %d: %w", number, err)
			}
			return err
		}
		if number == 1 && l.Started.IsZero() {
			l.Started = p.responseDate
		}
		l.Size = max(l.Size, p.size)
		if empty++; len(p.records) > 0 {
			empty = 0
			if sum := recordsSum(p); parts[sum] {
				return &BrokenList{fmt.Sprintf("part %d has the same records as an earlier one", number)}
			} else {
				parts[sum] = true
			}
		}
		for i := range p.records {
			l.Count++
			rec := &p.records[i]
			var err error
			if s.keepText && rec.text == nil && rec.bad == "" && !rec.Deleted {
				rec.bad = "incomplete record"
			}
			if rec.bad != "" {
				rec, err = nil, &BadRecord{Identifier: rec.Identifier, Number: l.Count, Rule: rec.bad, Datestamp: rec.Datestamp}
			}
			if !yield(rec, err) {
				return errStopped
			}
		}
		switch {
		case p.token == "":
			return l.checkEnd(p, number)
		case tokens[sha256.Sum256([]byte(p.token))]:
			return &BrokenList{fmt.Sprintf("part %d repeats the resumptionToken of an earlier one", number)}
		case empty == maxEmptyParts:
			return &BrokenList{fmt.Sprintf("%d parts in a row have no records", maxEmptyParts)}
		case l.Size > 0 && l.Count > maxSizeFactor*l.Size+sizeSlack:
			return &BrokenList{fmt.Sprintf("got %d records, want about %d", l.Count, l.Size)}
		}
		tokens[sha256.Sum256([]byte(p.token))] = true
		arguments = url.Values{"verb": {verb}, "resumptionToken": {p.token}}
	}
}

// checkEnd returns an error if a list that ends with a part is incomplete (section 3.5).
func (l *List) checkEnd(p *part, number int) error {
	switch {
	case l.Size > 0 && float64(l.Count) < minSizeShare*float64(l.Size):
		return &BrokenList{fmt.Sprintf("got %d records, want about %d", l.Count, l.Size)}
	case number > 1 && !p.hasToken:
		return &UncertainList{Reason: "the last part has no empty resumptionToken"}
	}
	return nil
}

// recordsSum returns a checksum that is equal for parts with the same records.
func recordsSum(p *part) (sum [32]byte) {
	h := sha256.New()
	for i := range p.records {
		fmt.Fprintf(h, "%s\n%s\n", p.records[i].Identifier, p.records[i].Datestamp)
	}
	h.Sum(sum[:0])
	return sum
}
