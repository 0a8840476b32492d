package callback

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// What bounds the reading of one list. It is the standard's limit for a document.
const (
	listTime = time.Minute
	maxList  = 50 << 20 // bytes
)

// getList reads a Change List, or an index of some, of at most maxList bytes. It follows
// no redirects, as for callbacks. Its errors say nothing of the hub's network and
// do not have the URL.
func (e *Engine) getList(ctx context.Context, list string) (*resourcesync.Document, error) {
	if err := e.CheckChangeList(list); err != nil {
		return nil, fmt.Errorf("the rules for callbacks forbid its URL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, list, nil)
	if err != nil {
		return nil, errors.New("its URL cannot be requested") // err has it
	}
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set("Accept", "application/xml, text/xml;q=0.9, */*;q=0.1")
	resp, err := e.transport.RoundTrip(r)
	if err != nil {
		return nil, explain(err)
	}
	defer drain(resp, cancel)
	switch c, status := resp.Header.Get("Content-Encoding"), resp.StatusCode; {
	case statusOutcome(status) == outcomeRedirect:
		return nil, &failure{fmt.Sprintf("the answer is a redirect (%d), which the hub does not follow: describe the set with the URL that it leads to", status), outcomeRedirect}
	case status != http.StatusOK:
		return nil, answered(fmt.Sprintf("the answer is %d", status), status)
	case c != "" && c != "identity":
		return nil, fmt.Errorf("the answer has the Content-Encoding %.20q, which was not asked for", c)
	case resp.ContentLength > maxList:
		return nil, fmt.Errorf("the answer has %d bytes: a list has at most %d", resp.ContentLength, maxList)
	}
	doc, err := resourcesync.ReadXML(resp.Body, resourcesync.Limits{Bytes: maxList})
	if _, ok := errors.AsType[*resourcesync.Error](err); ok {
		return nil, fmt.Errorf("it is no document of ResourceSync that can be read: %w", err)
	}
	if err != nil {
		return nil, explain(err)
	}
	if doc.Capability != resourcesync.ChangeList {
		return nil, fmt.Errorf("its capability is %.40q, not changelist", doc.Capability)
	}
	return doc, nil
}

// A listed is a Change List that an index names.
type listed struct {
	number int // in the index, from 1
	url    string
	from   time.Time
	until  time.Time // no change in it is later; zero: unknown
}

// listsOf returns the lists that an index names, oldest first. The standard has
// them in that order; where all say when they begin, it need not be trusted.
func listsOf(index *resourcesync.Document) []listed {
	lists := make([]listed, len(index.Items))
	dated := true
	for i, it := range index.Items {
		lists[i] = listed{i + 1, it.Loc, it.From, it.Until}
		dated = dated && !it.From.IsZero()
	}
	if dated {
		slices.SortStableFunc(lists, func(a, b listed) int { return a.from.Compare(b.from) })
	}
	return lists
}
