package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
)

// A record says what the archive of a set has. It is a file in the place, so all hubs read the
// same. It is replaced as a whole, after the files that it names are durable. Nobody changes a
// record that was read: with and fits return others.
type record struct {
	Begin int64  `json:"begin"` // when the set's log began; of another log, all of it is void
	Lists []kept `json:"lists"` // by number

	Resources []keptResources `json:"resourceLists,omitempty"` // by cursor
}

// A kept is a closed Change List in the place.
type kept struct {
	Number uint64      `json:"list"`
	Log    string      `json:"log"`             // the list's log and epoch
	Whole  bool        `json:"whole,omitempty"` // it is in whole seconds
	From   feed.Cursor `json:"from"`            // the cursor before its first change
	At     feed.Cursor `json:"at"`              // that of its last change
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"` // lower-case hex
}

// name returns the name of the list's file, and of its URL. It says all of a list but its size
// and hash, so the files alone tell what the archive has. It never means another list.
func (k *kept) name() string {
	name := "changelist-" + k.Log + "-" + strconv.FormatUint(k.Number, 10) + "-" + k.From.String() + "-" + k.At.String()
	if k.Whole {
		name += "-seconds"
	}
	return name + ".xml"
}

// parseName reads what name returns.
func parseName(name string) (k kept, ok bool) {
	rest, ok := strings.CutPrefix(name, "changelist-")
	rest, isXML := strings.CutSuffix(rest, ".xml")
	rest, k.Whole = strings.CutSuffix(rest, "-seconds")
	words := strings.Split(rest, "-")
	if !ok || !isXML || len(words) != 6 {
		return k, false
	}
	var errs [3]error
	k.Log = words[0]
	k.Number, errs[0] = strconv.ParseUint(words[1], 10, 64)
	k.From, errs[1] = feed.ParseCursor(words[2] + "-" + words[3])
	k.At, errs[2] = feed.ParseCursor(words[4] + "-" + words[5])
	return k, errors.Join(errs[:]...) == nil && k.name() == name
}

// listLog returns when the log of a Change List began, and the list's epoch. Another list of
// the same number has another one.
func listLog(st *feed.State, n uint64) string {
	begin := strconv.FormatInt(st.Begin, 10)
	if epoch := st.Epochs.Of(n); epoch != "" {
		return begin + "." + epoch
	}
	return begin
}

// wholeLists returns the number of the oldest list of which the log has every entry.
func wholeLists(st *feed.State) uint64 {
	k := uint64(st.ListSize)
	return (st.Floor.Position+k-1)/k + 1
}

// root is the directory of all archives in the place. No set can have this name.
const root = "_archive/"

// dirOf returns the directory of the archive of a set in the place.
func dirOf(set string) string { return root + set + "/" }

const recordName = "archive.json"

// maxRecord bounds a record in bytes: it has room for some 300,000 lists.
const maxRecord = 64 << 20

// readRecord reads the record of a set; the zero record if there is none.
func readRecord(ctx context.Context, p place.Place, set string) (rec *record, err error) {
	for try := 1; ; try++ { // another hub may just replace it, and S3 is asked twice: for its size, and for its bytes
		if rec, err = readOnce(ctx, p, dirOf(set)+recordName); err == nil || try == 3 {
			return rec, err
		}
	}
}

func readOnce(ctx context.Context, p place.Place, name string) (*record, error) {
	rec := new(record)
	f, err := p.Open(ctx, name)
	if errors.Is(err, place.ErrAbsent) {
		return rec, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err == nil {
		err = json.Unmarshal(text, rec)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return rec, nil
}

// writeRecord replaces the record of a set.
func writeRecord(ctx context.Context, p place.Place, set string, rec *record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return fmt.Errorf("the archive of set %q has too many lists: %d", set, len(rec.Lists))
	}
	w, err := p.Create(ctx, dirOf(set)+recordName)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, bytes.NewReader(text)); err != nil {
		w.Abort()
		return fmt.Errorf("write %s%s: %w", dirOf(set), recordName, err)
	}
	return w.Commit()
}

// fits returns the record without what is void in a state of the set: what belongs to another
// log, and lists that were filled anew. Epochs tell of lists that the log has. Lists that it has no more were
// archived as they were when it removed them, because retention waits for that.
func (r *record) fits(st *feed.State) *record {
	if r.Begin != st.Begin {
		return &record{Begin: st.Begin}
	}
	oldest, open := st.Lists()
	n, _ := slices.BinarySearchFunc(r.Lists, oldest, func(k kept, oldest uint64) int {
		if k.Number < oldest {
			return -1
		}
		return 1
	})
	for ; n < len(r.Lists); n++ {
		if k := &r.Lists[n]; k.Number >= open || k.Log != listLog(st, k.Number) {
			break
		}
	}
	return &record{Begin: r.Begin, Lists: r.Lists[:n:n], Resources: r.fitting(st)}
}

// with returns the record with one list more.
func (r *record) with(k kept) *record {
	return &record{Begin: r.Begin, Lists: append(r.Lists[:len(r.Lists):len(r.Lists)], k), Resources: r.Resources}
}

// next returns the number of the Change List that comes next; 0: whichever is the oldest.
func (r *record) next() uint64 {
	if n := len(r.Lists); n > 0 {
		return r.Lists[n-1].Number + 1
	}
	return 0
}

// find returns the list whose file has a name.
func (r *record) find(name string) (k kept, ok bool) {
	want, ok := parseName(name)
	if !ok {
		return k, false
	}
	i, ok := slices.BinarySearchFunc(r.Lists, want.Number, func(k kept, n uint64) int {
		switch {
		case k.Number < n:
			return -1
		case k.Number > n:
			return 1
		}
		return 0
	})
	if !ok || r.Lists[i].name() != name {
		return k, false
	}
	return r.Lists[i], true
}
