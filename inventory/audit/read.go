package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/digest"
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
		return Question{}, fmt.Errorf("read the question: %w", err)
	}
	if len(body) > MaxQuestion {
		return Question{}, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: fmt.Sprintf("a question has at most %d bytes", MaxQuestion)}
	}
	p := &questionReader{dec: jsontext.NewDecoder(bytes.NewBuffer(body))}
	q, err := p.question()
	if err != nil {
		return Question{}, p.explain(err)
	}
	return q, nil
}

type questionReader struct{ dec *jsontext.Decoder }

// explain returns the error of the decoder as one of this package.
func (p *questionReader) explain(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		return resourcesync.Invalid("the question ends early")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return resourcesync.Invalid("a member is there twice, at %d bytes", p.dec.InputOffset())
	case errors.As(err, &syntax):
		return resourcesync.Invalid("not valid JSON: %s, after %d bytes", resourcesync.Shorten(syntax.Err.Error()), syntax.ByteOffset)
	}
	return err
}

// object reads an object, and calls member with the name of each of its members.
func (p *questionReader) object(what string, member func(name string) error) error {
	if err := p.open('{', what, "an object"); err != nil {
		return err
	}
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}

// open reads the beginning of an object or an array.
func (p *questionReader) open(kind jsontext.Kind, what, shape string) error {
	switch p.dec.PeekKind() {
	case kind, 0: // 0: ReadToken says what is wrong
		_, err := p.dec.ReadToken()
		return err
	}
	return resourcesync.Invalid("%s is %s", what, shape)
}

// text reads a string. If null is true, it also accepts null, and returns ""
// for it.
func (p *questionReader) text(name string, null bool) (string, error) {
	t, err := p.dec.ReadToken()
	switch {
	case err != nil:
		return "", err
	case t.Kind() == 'n' && null:
		return "", nil
	case t.Kind() != '"':
		return "", resourcesync.Invalid("%s is a string", name)
	case t.String() == "":
		return "", resourcesync.Invalid("%s is empty; null stands for the beginning or the end of all resources", name)
	}
	return t.String(), nil
}

func (p *questionReader) question() (q Question, err error) {
	var at, by string
	ranges := false
	err = p.object("a question", func(name string) (err error) {
		switch name {
		case "at":
			at, err = p.text(name, false)
		case "by":
			by, err = p.text(name, false)
		case "ranges":
			ranges = true
			q.Ranges, err = p.ranges()
		default:
			return resourcesync.Invalid("a question has no member %q", resourcesync.Shorten(name))
		}
		return err
	})
	if err != nil {
		return q, err
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return q, resourcesync.Invalid("something follows the question")
	}
	switch q.By = digest.By(by); {
	case at == "":
		return q, resourcesync.Invalid("at is missing: it is the cursor at which both ends look")
	case q.By != digest.ByPosition && q.By != digest.ByContent:
		return q, resourcesync.Invalid("by is position or content")
	case !ranges:
		return q, resourcesync.Invalid("ranges is missing")
	}
	q.At, err = feed.ParseCursor(at)
	return q, err
}

func (p *questionReader) ranges() ([]Asked, error) {
	if err := p.open('[', "ranges", "an array"); err != nil {
		return nil, err
	}
	var all []Asked
	for p.dec.PeekKind() != ']' {
		if len(all) == MaxRanges {
			return nil, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: fmt.Sprintf("a question has at most %d ranges", MaxRanges)}
		}
		a, err := p.asked()
		if err == nil && len(all) > 0 {
			err = behind(all[len(all)-1].Range, a.Range)
		}
		if err != nil {
			return nil, resourcesync.About(fmt.Sprintf("range %d", len(all)+1), p.explain(err))
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, resourcesync.Invalid("a question has at least one range")
	}
	_, err := p.dec.ReadToken()
	return all, err
}

// behind returns an error unless a range lies after the range before.
func behind(before, r inventory.Range) error {
	if before.To == "" || r.From < before.To {
		return resourcesync.Invalid("it begins before the end of the range before it: ranges are ascending and disjoint")
	}
	return nil
}

func (p *questionReader) asked() (a Asked, err error) {
	count, text := false, ""
	err = p.object("a range", func(name string) (err error) {
		switch name {
		case "from":
			a.From, err = p.text(name, true)
		case "to":
			a.To, err = p.text(name, true)
		case "count":
			count = true
			a.Count, err = p.count()
		case "digest":
			text, err = p.text(name, false)
		default:
			return resourcesync.Invalid("a range has no member %q", resourcesync.Shorten(name))
		}
		return err
	})
	switch {
	case err != nil:
		return a, err
	case !count:
		return a, resourcesync.Invalid("count is missing")
	case text == "":
		return a, resourcesync.Invalid("digest is missing")
	case len(a.From) > maxBound || len(a.To) > maxBound:
		return a, resourcesync.Invalid("from or to has more than %d bytes", maxBound)
	case a.To != "" && a.From >= a.To:
		return a, resourcesync.Invalid("from is not before to")
	}
	a.Digest, err = digest.Parse(text)
	return a, err
}

func (p *questionReader) count() (uint64, error) {
	if k := p.dec.PeekKind(); k != '0' && k != 0 {
		return 0, resourcesync.Invalid("count is a number")
	}
	v, err := p.dec.ReadValue()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil || n > feed.MaxNumber {
		return 0, resourcesync.Invalid("count is a whole number, not %s", resourcesync.Shorten(string(v)))
	}
	return n, nil
}

// ReadLook reads what Look.AppendJSON writes. It skips unknown members, because a later
// hub may send more. An error is a *resourcesync.Error, or it wraps the error of r.
func ReadLook(r io.Reader) (Look, error) {
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
		return Look{}, unread(err)
	}
	if l.Count == nil || l.Weak == nil {
		return Look{}, resourcesync.Invalid("a look has count and weak")
	}
	look := Look{Set: l.Set, Complete: l.Complete, Count: *l.Count, Weak: *l.Weak}
	var errs [3]error
	look.Cursor, errs[0] = feed.ParseCursor(l.Cursor)
	look.Position, errs[1] = digest.Parse(l.Position)
	look.Content, errs[2] = digest.Parse(l.Content)
	for _, err := range errs {
		if err != nil {
			return Look{}, err
		}
	}
	return look, nil
}

// unread returns the error of reading an answer.
func unread(err error) error {
	var syntax *jsontext.SyntacticError
	var shape *json.SemanticError
	switch {
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		return resourcesync.Invalid("the answer ends early")
	case errors.As(err, &syntax), errors.As(err, &shape):
		return resourcesync.Invalid("not the answer of an audit: %v", err)
	}
	return fmt.Errorf("read the answer: %w", err)
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
		return Reply{}, resourcesync.Invalid("an answer has ranges")
	}
	reply := Reply{Set: in.Set}
	var err error
	if reply.Cursor, err = feed.ParseCursor(in.Cursor); err != nil {
		return Reply{}, err
	}
	for i := range in.Ranges {
		read := &in.Ranges[i]
		a := Answered{Range: inventory.Range{From: read.From, To: read.To}, Count: read.Count, Listed: read.Resources != nil}
		if a.Listed {
			a.Resources, err = readResources(read.Resources)
		} else {
			a.Digest, err = digest.Parse(read.Digest)
		}
		if err != nil {
			return Reply{}, resourcesync.About(fmt.Sprintf("range %d", i+1), err)
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
