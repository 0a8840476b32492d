package audit

import (
	"cmp"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// MaxQuestion is the maximum size of a Question as JSON, in bytes.
const MaxQuestion = 5 << 20

// maxBound is the maximum length of the boundary of a range: a loc and the byte after it.
const maxBound = 2_049

// ReadQuestion reads a question strictly: it rejects unknown and repeated members, and values
// beyond the limits. Only the ends of a range may be null or absent. An error is a
// *resourcesync.Error that names the range and the rule, or wraps the error of r.
func ReadQuestion(r io.Reader) (Question, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxQuestion+1))
	if err != nil {
		return Question{}, fmt.Errorf("read question: %w", err)
	}
	if len(body) > MaxQuestion {
		return Question{}, tooLarge("the question exceeds %d bytes", MaxQuestion)
	}
	var in struct {
		At     string         `json:"at"`
		By     string         `json:"by"`
		Ranges rangeQuestions `json:"ranges"`
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

func tooLarge(format string, args ...any) error {
	return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf(format, args...)}
}

// readRanges appends the ranges of a document. It decodes one at a time and stops at the limit,
// because ranges take more memory than their text.
func readRanges[R any](dec *jsontext.Decoder, document string, limit int, all *[]R, read func() (R, error)) error {
	return resourcesync.ReadJSONArray(dec, "ranges", func() error {
		if len(*all) == limit {
			return tooLarge("the %s exceeds %d ranges", document, limit)
		}
		r, err := read()
		if err != nil {
			return resourcesync.Wrap(fmt.Sprintf("range %d", len(*all)+1), resourcesync.JSONError(err))
		}
		*all = append(*all, r)
		return nil
	})
}

type rangeQuestions []RangeQuestion

func (rs *rangeQuestions) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readRanges(dec, "question", MaxRanges, (*[]RangeQuestion)(rs), func() (RangeQuestion, error) {
		r, err := readRangeQuestion(dec)
		if n := len(*rs); err == nil && n > 0 {
			if end := (*rs)[n-1].To; end == "" || r.From < end {
				err = resourcesync.Invalidf("from is before the end of the previous range; want ascending, disjoint ranges")
			}
		}
		return r, err
	})
}

func readRangeQuestion(dec *jsontext.Decoder) (r RangeQuestion, err error) {
	var in struct {
		From   *string `json:"from"`
		To     *string `json:"to"`
		Count  *uint64 `json:"count"`
		Digest string  `json:"digest"`
	}
	if err := json.UnmarshalDecode(dec, &in); err != nil {
		return r, err
	}
	var errs [2]error
	r.From, errs[0] = checkBound("from", in.From)
	r.To, errs[1] = checkBound("to", in.To)
	switch err := cmp.Or(errs[:]...); {
	case err != nil:
		return r, err
	case in.Count == nil:
		return r, resourcesync.Invalidf("count is missing")
	case *in.Count > feed.MaxNumber:
		return r, resourcesync.Invalidf("count: got %d, want at most %d", *in.Count, uint64(feed.MaxNumber))
	case in.Digest == "":
		return r, resourcesync.Invalidf("digest is missing")
	case r.To != "" && r.From >= r.To:
		return r, resourcesync.Invalidf("from must be before to")
	}
	r.Count = *in.Count
	r.Digest, err = digest.Parse(in.Digest)
	return r, err
}

// checkBound returns an end of a range, which is "" if it is null or absent.
func checkBound(name string, loc *string) (string, error) {
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

// ReadSummary reads the output of Summary.AppendJSON. It ignores unknown members, which a later
// hub may send. An error is a *resourcesync.Error, or wraps the error of r.
func ReadSummary(r io.Reader) (Summary, error) {
	var in struct {
		Set      string  `json:"set"`
		Cursor   string  `json:"cursor"`
		Complete bool    `json:"complete"`
		Count    *uint64 `json:"count"`
		Weak     *uint64 `json:"weak"`
		Position string  `json:"position"`
		Content  string  `json:"content"`
	}
	err := readAnswer(r, &in)
	if err == nil && (in.Count == nil || in.Weak == nil) {
		err = resourcesync.Invalidf("count or weak is missing")
	}
	if err != nil {
		return Summary{}, err
	}
	s := Summary{Set: in.Set, Complete: in.Complete, Count: *in.Count, Weak: *in.Weak}
	var errs [3]error
	s.Cursor, errs[0] = feed.ParseCursor(in.Cursor)
	s.Position, errs[1] = digest.Parse(in.Position)
	s.Content, errs[2] = digest.Parse(in.Content)
	return s, cmp.Or(errs[:]...)
}

func readAnswer(r io.Reader, v any) error {
	if err := json.UnmarshalRead(r, v); err != nil {
		return resourcesync.Wrap("invalid answer of an audit", resourcesync.JSONError(err))
	}
	return nil
}

// ReadReply reads the output of Reply.AppendJSON. It ignores unknown members. An error is a
// *resourcesync.Error, or wraps the error of r. Compare checks whether the reply answers the
// question.
func ReadReply(r io.Reader) (Reply, error) {
	var in struct {
		Set    string        `json:"set"`
		Cursor string        `json:"cursor"`
		Ranges *rangeAnswers `json:"ranges"`
	}
	if err := readAnswer(r, &in); err != nil {
		return Reply{}, err
	}
	if in.Ranges == nil {
		return Reply{}, resourcesync.Invalidf("ranges is missing")
	}
	cursor, err := feed.ParseCursor(in.Cursor)
	if err != nil {
		return Reply{}, err
	}
	return Reply{Set: in.Set, Cursor: cursor, Ranges: *in.Ranges}, nil
}

type rangeAnswers []RangeAnswer

func (rs *rangeAnswers) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readRanges(dec, "answer", MaxRanges*MaxSplit, (*[]RangeAnswer)(rs), func() (a RangeAnswer, err error) {
		var in struct {
			From      string     `json:"from"`
			To        string     `json:"to"`
			Count     uint64     `json:"count"`
			Digest    string     `json:"digest"`
			Resources *resources `json:"resources"`
		}
		if err := json.UnmarshalDecode(dec, &in); err != nil {
			return a, err
		}
		a.From, a.To, a.Count, a.Listed = in.From, in.To, in.Count, in.Resources != nil
		if a.Listed {
			a.Resources = *in.Resources
		} else {
			a.Digest, err = digest.Parse(in.Digest)
		}
		return a, err
	})
}

type resources []Resource

// UnmarshalJSONFrom reads the resources of a range, and their entries if the answer has them.
func (rs *resources) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return resourcesync.ReadJSONArray(dec, "resources", func() error {
		text, err := dec.ReadValue()
		if err != nil {
			return err
		}
		var in struct {
			Loc      string `json:"loc"`
			Position uint64 `json:"position"`
			E        string `json:"e"`
			Datetime string `json:"datetime"`
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return resourcesync.JSONError(err)
		}
		r := Resource{Loc: in.Loc, Position: in.Position}
		if r.E, err = digest.Parse(in.E); err != nil {
			return err
		}
		if in.Datetime != "" {
			e, err := feed.ParseEntry(text)
			if err != nil {
				return err
			}
			r.Entry = &e
		}
		*rs = append(*rs, r)
		return nil
	})
}
