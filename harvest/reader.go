package harvest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// Bounds of reading one list.
const (
	listTime = time.Minute
	maxList  = 50 << 20 // bytes: the standard's limit for a document

	maxEntries = 50_000 // the same of entries

	// A list of which fewer bytes than these come in each of these times is given up:
	// a source that drips must not hold what others wait for.
	paceTime  = 10 * time.Second
	paceBytes = 32 << 10
)

// A Reader reads the lists of other people's sources. It keeps no state.
type Reader struct {
	Client *http.Client                    // makes the requests; it must not follow redirects
	Check  func(name, target string) error // says whether a URL may be read; name says what the URL is, for errors
}

// Read reads a Change List, or an index of Change Lists, of at most maxList
// bytes. It blocks until the list is read, a minute is over, or ctx ends. Its
// errors contain neither the URL nor anything about the hub's network, and wrap
// an *outbound.Failure when the request failed.
func (rd Reader) Read(ctx context.Context, list string) (*resourcesync.Document, error) {
	if err := rd.Check("changelist", list); err != nil {
		return nil, fmt.Errorf("the rules for callbacks forbid its URL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, list, nil)
	if err != nil {
		return nil, errors.New("its URL cannot be requested") // err contains the URL
	}
	r.Header.Set("User-Agent", outbound.UserAgent)
	r.Header.Set("Accept", "application/xml, text/xml;q=0.9, */*;q=0.1")
	resp, err := rd.Client.Do(r)
	if err != nil {
		return nil, outbound.Explain(err)
	}
	defer outbound.Drain(resp, cancel)
	switch c, status := resp.Header.Get("Content-Encoding"), resp.StatusCode; {
	case outbound.OfStatus(status) == outbound.Redirect:
		return nil, &outbound.Failure{Text: fmt.Sprintf("the answer is a redirect (%d), which the hub does not follow: describe the set with the URL that it leads to", status), Outcome: outbound.Redirect}
	case status != http.StatusOK:
		return nil, outbound.Answered(fmt.Sprintf("the answer is %d", status), status)
	case c != "" && c != "identity":
		return nil, fmt.Errorf("the answer has the Content-Encoding %.20q, which the hub did not ask for", c)
	case resp.ContentLength > maxList:
		return nil, fmt.Errorf("the answer has %d bytes: a list has at most %d", resp.ContentLength, maxList)
	}
	body := newPaced(resp.Body, cancel)
	defer body.stop()
	doc, err := resourcesync.ReadXML(body, resourcesync.Limits{Bytes: maxList})
	if slow, ok := errors.AsType[*outbound.Failure](err); ok {
		return nil, slow
	}
	if _, ok := errors.AsType[*resourcesync.Error](err); ok {
		return nil, fmt.Errorf("it is not a ResourceSync document that can be read: %w", err)
	}
	if err != nil {
		return nil, outbound.Explain(err)
	}
	if doc.Capability != resourcesync.ChangeList {
		return nil, fmt.Errorf("its capability is %.40q, not changelist", doc.Capability)
	}
	return doc, nil
}

// A listed is one Change List that an index names.
type listed struct {
	number int // place in the index, from 1
	url    string
	from   time.Time
	until  time.Time // no change in the list is later; zero: unknown
}

// listsOf returns the lists that an index names, oldest first. The standard
// demands that order of an index. If every list says when it begins, the lists
// are sorted, in case the source does not keep to that.
func listsOf(index *resourcesync.Document) []listed {
	lists := make([]listed, len(index.Items))
	for i, it := range index.Items {
		lists[i] = listed{i + 1, it.Loc, it.From, it.Until}
	}
	return inOrder(lists)
}

// inOrder sorts the lists of an index if each says when it begins.
func inOrder(lists []listed) []listed {
	if !slices.ContainsFunc(lists, func(l listed) bool { return l.from.IsZero() }) {
		slices.SortStableFunc(lists, func(a, b listed) int { return a.from.Compare(b.from) })
	}
	return lists
}

// A paced reads an answer, and cancels the request when too little of it comes. Only the
// time of reading counts: whoever works on what came may take longer.
type paced struct {
	io.Reader
	timer *time.Timer
	slow  atomic.Bool // too little came

	// For who reads.
	came int           // bytes since the pace was met last
	took time.Duration // of reading them
}

func newPaced(r io.Reader, cancel context.CancelFunc) *paced {
	p := &paced{Reader: r}
	p.timer = time.AfterFunc(paceTime, func() {
		p.slow.Store(true)
		cancel()
	})
	p.timer.Stop()
	return p
}

// Read reads what has come.
func (p *paced) Read(b []byte) (int, error) {
	if p.slow.Load() {
		return 0, errSlow
	}
	begin := time.Now()
	p.timer.Reset(paceTime - p.took)
	n, err := p.Reader.Read(b)
	p.timer.Stop()
	p.took += time.Since(begin)
	if p.came += n; p.came >= paceBytes {
		p.came, p.took = 0, 0
	}
	if err != nil && err != io.EOF && p.slow.Load() {
		err = errSlow
	}
	return n, err
}

func (p *paced) stop() { p.timer.Stop() }

var errSlow = &outbound.Failure{Text: fmt.Sprintf("it arrives too slowly: less than %d KiB in %v", paceBytes>>10, paceTime), Outcome: outbound.Timeout}
