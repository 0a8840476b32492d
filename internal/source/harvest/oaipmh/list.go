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
	emptyMost = 10   // the most parts in a row without a record
	overSize  = 10   // a list may have this many times the records that it announces
	sizeSlack = 1000 // and this many more
	leastPart = 0.9  // the least share of the announced records that must come
)

// A Selection says which records to list.
type Selection struct {
	Prefix string    // metadataPrefix
	Set    string    // setSpec; empty: all records
	From   time.Time // of the datestamps, inclusive; zero: from the first record
	Until  time.Time // the same; zero: to the last record

	Records bool // list whole records, not only their headers. A repository that cannot list headers lists records in any case

	whole bool // keep the text of the records; Records must be set, too
	again bool // list everything once more if a resumptionToken expires
}

// A Doubt says that a list may not be whole, although nothing failed. The yielded
// records are right.
type Doubt struct {
	Reason string
	Short  bool // the repository says that the list ends, although its last part had a resumptionToken
}

// Error returns the reason.
func (d *Doubt) Error() string { return "the list may not be whole: " + d.Reason }

// A Broken says that a list is not whole, and that continuing would not help.
type Broken struct{ Reason string }

// Error returns the reason.
func (b *Broken) Error() string { return "the list is not whole: " + b.Reason }

// A Bad is a record that cannot be used. The list goes on after it.
type Bad struct {
	Identifier string
	Number     int // in the list, from 1
	Rule       string
	None       bool   // the record is whole, but has no resource
	Datestamp  string // as the repository writes it; it distinguishes records without an identifier
}

// Error names the record and the rule.
func (b *Bad) Error() string {
	if b.Identifier == "" {
		return fmt.Sprintf("record %d: %s", b.Number, b.Rule)
	}
	return fmt.Sprintf("record %d (%.200q): %s", b.Number, b.Identifier, b.Rule)
}

// key identifies records that look the same.
func (b *Bad) key() [sha256.Size]byte {
	return sha256.Sum256([]byte(b.Identifier + "\n" + b.Datestamp))
}

// A List is one list of records, while it is read.
type List struct {
	Begun time.Time // the repository's time when the list began; zero: it does not say
	Count int       // records so far
	Size  int       // records that the repository announced, an estimate; 0: unknown

	Again error // why the list was started from scratch; nil if it was not

	damaged bool                      // a record with damaged metadata was noted
	bad     map[[sha256.Size]byte]int // how many records like a bad one came before Again; nil if it is not needed
}

// List lists the records of a selection. A record may come twice. A *Bad stands for one
// record. A *Doubt comes last in the sequence. Every other error ends it. It is a
// *Broken, an *Error of the repository, or one of harvest.Getter. With the code
// badResumptionToken the list has to be begun again. l is filled in from the first
// record on. If l.Again is set, all records come once more, and only *Bad that did not come
// before.
func (r *Repository) List(ctx context.Context, l *List, g Granularity, s Selection) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		if err := r.list(ctx, l, g, s, yield); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

var errStopped = errors.New("the caller wants no more")

func (r *Repository) list(ctx context.Context, l *List, g Granularity, s Selection, yield func(*Record, error) bool) error {
	if !s.again {
		return r.listOnce(ctx, l, g, s, yield)
	}
	l.bad = map[[sha256.Size]byte]int{}
	err := r.listOnce(ctx, l, g, s, func(rec *Record, err error) bool {
		if b, ok := errors.AsType[*Bad](err); ok && len(l.bad) < maxBad {
			l.bad[b.key()]++
		}
		return yield(rec, err)
	})
	if !is(err, badResumptionToken) {
		return err
	}
	l.Again, l.Count, l.Size = err, 0, 0
	return r.listOnce(ctx, l, g, s, func(rec *Record, err error) bool {
		if b, ok := errors.AsType[*Bad](err); ok && l.bad[b.key()] > 0 {
			l.bad[b.key()]--
			return true
		}
		return yield(rec, err)
	})
}

// maxBad bounds the memory for bad records of a list that may be started from scratch.
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

// lacksVerb reports whether an error may mean that a repository does not know a verb.
// Some repositories answer with an HTTP error.
func lacksVerb(err error) bool {
	f, ok := errors.AsType[*outbound.Failure](err)
	return is(err, badVerb) || ok && f.Status != 0
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
		p, err := r.ask(ctx, arguments, s.whole)
		if is(err, noRecordsMatch) && number == 1 {
			l.Begun = p.responseDate
			return nil
		}
		if is(err, noRecordsMatch) {
			if err := l.end(&part{hasToken: true}, number); err != nil || l.Size > 0 && l.Count >= l.Size {
				return err
			}
			return &Doubt{Reason: fmt.Sprintf("its part %d is said to have no records", number), Short: true}
		}
		if err == nil && !p.list {
			err = &Broken{"the answer has neither a list nor an error"}
		}
		if err != nil {
			if number > 1 && !is(err, badResumptionToken) {
				return fmt.Errorf("part %d: %w", number, err)
			}
			return err
		}
		if number == 1 && l.Begun.IsZero() {
			l.Begun = p.responseDate
		}
		l.Size = max(l.Size, p.size)
		if empty++; len(p.records) > 0 {
			empty = 0
			if sum := sumOf(p); parts[sum] {
				return &Broken{fmt.Sprintf("part %d has the same records as an earlier one", number)}
			} else {
				parts[sum] = true
			}
		}
		for i := range p.records {
			l.Count++
			rec := &p.records[i]
			var err error
			if s.whole && rec.text == nil && rec.bad == "" && !rec.Deleted {
				rec.bad = "it is no whole record"
			}
			if rec.bad != "" {
				rec, err = nil, &Bad{Identifier: rec.Identifier, Number: l.Count, Rule: rec.bad, Datestamp: rec.Datestamp}
			}
			if !yield(rec, err) {
				return errStopped
			}
		}
		switch {
		case p.token == "":
			return l.end(p, number)
		case tokens[sha256.Sum256([]byte(p.token))]:
			return &Broken{fmt.Sprintf("part %d repeats the resumptionToken of an earlier one", number)}
		case empty == emptyMost:
			return &Broken{fmt.Sprintf("%d parts in a row have no record", emptyMost)}
		case l.Size > 0 && l.Count > overSize*l.Size+sizeSlack:
			return &Broken{fmt.Sprintf("%d records came, of %d that it has", l.Count, l.Size)}
		}
		tokens[sha256.Sum256([]byte(p.token))] = true
		arguments = url.Values{"verb": {verb}, "resumptionToken": {p.token}}
	}
}

// end returns an error if a list that ends with a part is not whole (section
// 3.5).
func (l *List) end(p *part, number int) error {
	switch {
	case l.Size > 0 && float64(l.Count) < leastPart*float64(l.Size):
		return &Broken{fmt.Sprintf("it ends after %d records, of %d that it has", l.Count, l.Size)}
	case number > 1 && !p.hasToken:
		return &Doubt{Reason: "its last part has no empty resumptionToken"}
	}
	return nil
}

// sumOf returns a sum that is equal for parts with the same records.
func sumOf(p *part) (sum [32]byte) {
	h := sha256.New()
	for i := range p.records {
		fmt.Fprintf(h, "%s\n%s\n", p.records[i].Identifier, p.records[i].Datestamp)
	}
	h.Sum(sum[:0])
	return sum
}
