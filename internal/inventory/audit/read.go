package audit

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// MaxQuestion is how many bytes a Question has at most, as JSON.
const MaxQuestion = 5 << 20

// maxBound is how long the boundary of a range may be: a loc, and the byte behind it.
const maxBound = 2_049

// ReadQuestion reads a question strictly. It refuses unknown and repeated members, and
// values beyond the limits. Only the ends of a range may be null or absent. An error
// is a *resourcesync.Error that names the range and the rule, or it wraps the error of
// r.
func ReadQuestion(r io.Reader) (Question, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxQuestion+1))
	if err != nil {
		return Question{}, fmt.Errorf("read question: %w", err)
	}
	if len(body) > MaxQuestion {
		return Question{}, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("the question exceeds %d bytes", MaxQuestion)}
	}
	var in struct {
		At     string `json:"at"`
		By     string `json:"by"`
		Ranges ranges `json:"ranges"`
	}
	if err := resourcesync.DecodeJSON(body, &in); err != nil {
		return Question{}, resourcesync.Wrap("question", err)
	}
	q := Question{By: digest.By(in.By), Ranges: in.Ranges}
	switch {
	case in.At == "":
		return q, resourcesync.Invalidf("at is missing; want the cursor at which both ends compare")
	case q.By != digest.ByPosition && q.By != digest.ByContent:
		return q, resourcesync.Invalidf("by: want position or content")
	case len(q.Ranges) == 0:
		return q, resourcesync.Invalidf("ranges is missing; want at least one range")
	}
	q.At, err = feed.ParseCursor(in.At)
	return q, err
}

// ranges are those of a question, in the order of loc.
type ranges []RangeQuestion

// UnmarshalJSONFrom reads no more ranges than a question may have, because they take more memory
// than their text.
func (rs *ranges) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return resourcesync.ReadJSONArray(dec, "ranges", func() error {
		n := len(*rs)
		if n == MaxRanges {
			return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("the question exceeds %d ranges", MaxRanges)}
		}
		a, err := readAsked(dec)
		if err == nil && n > 0 {
			err = behind((*rs)[n-1].Range, a.Range)
		}
		if err != nil {
			return resourcesync.Wrap(fmt.Sprintf("range %d", n+1), resourcesync.JSONError(err))
		}
		*rs = append(*rs, a)
		return nil
	})
}

// behind returns an error unless a range lies after the range before.
func behind(before, r inventory.Range) error {
	if before.To == "" || r.From < before.To {
		return resourcesync.Invalidf("from is before the end of the previous range; want ascending, disjoint ranges")
	}
	return nil
}

// readAsked reads a range of a question.
func readAsked(dec *jsontext.Decoder) (a RangeQuestion, err error) {
	var in struct {
		From   *string `json:"from"`
		To     *string `json:"to"`
		Count  *uint64 `json:"count"`
		Digest string  `json:"digest"`
	}
	if err := json.UnmarshalDecode(dec, &in); err != nil {
		return a, err
	}
	if a.From, err = bound("from", in.From); err != nil {
		return a, err
	}
	if a.To, err = bound("to", in.To); err != nil {
		return a, err
	}
	switch {
	case in.Count == nil:
		return a, resourcesync.Invalidf("count is missing")
	case *in.Count > feed.MaxNumber:
		return a, resourcesync.Invalidf("count: got %d, want at most %d", *in.Count, uint64(feed.MaxNumber))
	case in.Digest == "":
		return a, resourcesync.Invalidf("digest is missing")
	case a.To != "" && a.From >= a.To:
		return a, resourcesync.Invalidf("from must be before to")
	}
	a.Count = *in.Count
	a.Digest, err = digest.Parse(in.Digest)
	return a, err
}

// bound returns an end of a range; "" if it is null or absent.
func bound(name string, loc *string) (string, error) {
	switch {
	case loc == nil:
		return "", nil
	case *loc == "":
		return "", resourcesync.Invalidf("%s is empty; use null for the start or the end", name)
	case len(*loc) > maxBound:
		return "", resourcesync.Invalidf("%s exceeds %d bytes", name, maxBound)
	}
	return *loc, nil
}

// ReadSummary reads what Summary.AppendJSON writes. It skips unknown members, because a later
// hub may send more. An error is a *resourcesync.Error, or it wraps the error of r.
func ReadSummary(r io.Reader) (Summary, error) {
	var l struct {
		Set      string  `json:"set"`
		Cursor   string  `json:"cursor"`
		Complete bool    `json:"complete"`
		Count    *uint64 `json:"count"`
		Weak     *uint64 `json:"weak"`
		Position string  `json:"position"`
		Content  string  `json:"content"`
	}
	if err := json.UnmarshalRead(r, &l); err != nil {
		return Summary{}, unread(err)
	}
	if l.Count == nil || l.Weak == nil {
		return Summary{}, resourcesync.Invalidf("count or weak is missing")
	}
	look := Summary{Set: l.Set, Complete: l.Complete, Count: *l.Count, Weak: *l.Weak}
	var errs [3]error
	look.Cursor, errs[0] = feed.ParseCursor(l.Cursor)
	look.Position, errs[1] = digest.Parse(l.Position)
	look.Content, errs[2] = digest.Parse(l.Content)
	for _, err := range errs {
		if err != nil {
			return Summary{}, err
		}
	}
	return look, nil
}

// unread returns the error of reading an answer.
func unread(err error) error {
	return resourcesync.Wrap("invalid answer of an audit", resourcesync.JSONError(err))
}

// ReadReply reads what Reply.AppendJSON writes. It skips members that it does not know.
// An error is a *resourcesync.Error, or it wraps the error of r. Compare checks whether
// the reply answers the question.
func ReadReply(r io.Reader) (Reply, error) {
	var in struct {
		Set    string `json:"set"`
		Cursor string `json:"cursor"`
		Ranges []struct {
			From      string           `json:"from"`
			To        string           `json:"to"`
			Count     uint64           `json:"count"`
			Digest    string           `json:"digest"`
			Resources []jsontext.Value `json:"resources"`
		} `json:"ranges"`
	}
	if err := json.UnmarshalRead(r, &in); err != nil {
		return Reply{}, unread(err)
	}
	if in.Ranges == nil {
		return Reply{}, resourcesync.Invalidf("ranges is missing")
	}
	reply := Reply{Set: in.Set}
	var err error
	if reply.Cursor, err = feed.ParseCursor(in.Cursor); err != nil {
		return Reply{}, err
	}
	for i := range in.Ranges {
		read := &in.Ranges[i]
		a := RangeAnswer{Range: inventory.Range{From: read.From, To: read.To}, Count: read.Count, Listed: read.Resources != nil}
		if a.Listed {
			a.Resources, err = readResources(read.Resources)
		} else {
			a.Digest, err = digest.Parse(read.Digest)
		}
		if err != nil {
			return Reply{}, resourcesync.Wrap(fmt.Sprintf("range %d", i+1), err)
		}
		reply.Ranges = append(reply.Ranges, a)
	}
	return reply, nil
}

// readResources reads the resources of a range, with their entries if the reply has
// them.
func readResources(raw []jsontext.Value) ([]Resource, error) {
	all := make([]Resource, len(raw))
	for i := range raw {
		var in struct {
			Loc      string `json:"loc"`
			Position uint64 `json:"position"`
			E        string `json:"e"`
			Datetime string `json:"datetime"`
		}
		err := json.Unmarshal(raw[i], &in)
		if err != nil {
			return nil, unread(err)
		}
		all[i] = Resource{Loc: in.Loc, Position: in.Position}
		if all[i].E, err = digest.Parse(in.E); err != nil {
			return nil, err
		}
		if in.Datetime != "" {
			e, err := feed.ParseEntry(raw[i])
			if err != nil {
				return nil, err
			}
			all[i].Entry = &e
		}
	}
	return all, nil
}
