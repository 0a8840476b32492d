package callback

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/changelog"
)

// Registries keep subscriptions and requests as JSON, as they are written
// seldom, and progress in a form of its own, a fifth of the size.

// encodeSubscription returns what a registry keeps of s.
func encodeSubscription(s *Subscription) ([]byte, error) {
	if err := checkText(s.Set, s.Callback, s.Secret, s.Token, s.Filter.Prefix); err != nil {
		return nil, err
	}
	kept := *s
	kept.LeaseEnd, kept.Made, kept.Renewed = micros(s.LeaseEnd), micros(s.Made), micros(s.Renewed)
	return json.Marshal(&kept)
}

func decodeSubscription(b []byte) (s Subscription, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%w: a subscription: %w", changelog.ErrCorrupt, err)
	}
	return s, nil
}

// encodeRequest returns what a registry keeps of r, but for its number.
func encodeRequest(r *Request) ([]byte, error) {
	if err := checkText(r.Set, r.Callback, r.Secret, r.Filter.Prefix); err != nil {
		return nil, err
	}
	kept := *r
	kept.At = micros(r.At)
	return json.Marshal(&kept)
}

// decodeRequest reads what encodeRequest wrote; of anything else only the number
// is known.
func decodeRequest(number uint64, b []byte) (r Request) {
	if err := json.Unmarshal(b, &r); err != nil {
		r = Request{}
	}
	r.Number = number
	return r
}

// checkText refuses what JSON would change.
func checkText(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return changelog.Invalid("%.80q is not UTF-8", s)
		}
	}
	return nil
}

func micros(t time.Time) time.Time { return t.Truncate(time.Microsecond).UTC() }

// progressVersion begins what is kept of a Progress.
const progressVersion = 1

// encodeProgress returns what a registry keeps of p: numbers as varints, in the
// order of the fields, and strings behind their length.
func encodeProgress(p *Progress) []byte {
	b := append(make([]byte, 0, 64+32*len(p.Last)), progressVersion)
	b = appendCursor(appendCursor(appendCursor(b, p.Cursor), p.From), p.Gap)
	b = binary.AppendUvarint(b, uint64(p.Gaps))
	diverged := uint64(0)
	if p.Diverged {
		diverged = 1
	}
	b = binary.AppendUvarint(b, diverged)
	b = binary.AppendUvarint(b, uint64(p.Failed))
	b = appendTime(b, p.Next)
	b = binary.AppendUvarint(b, uint64(len(p.Last)))
	for i := range p.Last {
		a := &p.Last[i]
		b = appendTime(b, a.At)
		b = appendText(b, a.Kind)
		b = binary.AppendUvarint(b, uint64(a.Status))
		b = binary.AppendVarint(b, int64(a.Took))
		b = binary.AppendUvarint(b, uint64(a.Changes))
		b = appendText(b, a.Error)
	}
	return b
}

func appendCursor(b []byte, c changelog.Cursor) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, c.Position), c.Micros)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendVarint(b, 0)
	}
	return binary.AppendVarint(b, t.UnixMicro())
}

func decodeProgress(b []byte) (p Progress, err error) {
	if len(b) == 0 || b[0] != progressVersion {
		return p, fmt.Errorf("%w: a progress of an unknown version", changelog.ErrCorrupt)
	}
	r := fields{rest: b[1:]}
	p.Cursor, p.From, p.Gap = r.cursor(), r.cursor(), r.cursor()
	p.Gaps = int(r.unsigned())
	p.Diverged = r.unsigned() == 1
	p.Failed = int(r.unsigned())
	p.Next = r.time()
	for n := r.unsigned(); n > 0 && !r.bad; n-- {
		p.Last = append(p.Last, Attempt{
			At: r.time(), Kind: r.text(), Status: int(r.unsigned()),
			Took: time.Duration(r.signed()), Changes: int(r.unsigned()), Error: r.text(),
		})
	}
	if r.bad || len(r.rest) > 0 {
		return p, fmt.Errorf("%w: a progress of %d bytes", changelog.ErrCorrupt, len(b))
	}
	return p, nil
}

// fields reads what encodeProgress wrote. Once bad, it stays so.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) skip(n int) {
	if n <= 0 {
		f.bad, f.rest = true, nil
		return
	}
	f.rest = f.rest[n:]
}

func (f *fields) unsigned() uint64 {
	v, n := binary.Uvarint(f.rest)
	f.skip(n)
	return v
}

func (f *fields) signed() int64 {
	v, n := binary.Varint(f.rest)
	f.skip(n)
	return v
}

func (f *fields) cursor() changelog.Cursor {
	return changelog.Cursor{Position: f.unsigned(), Micros: f.signed()}
}

func (f *fields) text() string {
	n := f.unsigned()
	if n > uint64(len(f.rest)) {
		f.skip(0)
		return ""
	}
	s := string(f.rest[:n])
	f.rest = f.rest[n:]
	return s
}

func (f *fields) time() time.Time {
	if v := f.signed(); v != 0 {
		return time.UnixMicro(v).UTC()
	}
	return time.Time{}
}

// decodeRecord reads both parts of a record.
func decodeRecord(subscription, progress []byte) (r Record, err error) {
	if r.Subscription, err = decodeSubscription(subscription); err != nil {
		return r, err
	}
	r.Progress, err = decodeProgress(progress)
	return r, err
}
