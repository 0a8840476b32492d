package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// A message is what a hub pushes, of a baseline or of changes. It is also a line of the
// journal of a destination that is no replica.
type message struct {
	Set, After, Cursor string
	Baseline           *bool
	Complete           bool
	Restart, Diverged  bool
	Anew               bool // the destination's own word: the hub said gone, so it joins again
	Count              int
	Position, Content  string
	Resources, Changes []json.RawMessage
}

// A journal is what a destination holds after all messages in its journal.
type journal struct {
	held   fold
	cursor string // of the last message
	whole  bool   // a baseline was read to its end

	offset    int64 // in the file
	baseline  fold  // that is being read; nil: none is
	messages  int
	baselines int // that came to their end
	restarts  int
	resumed   int // times that a baseline went on in the middle
	rejoined  int // times that the hub said gone
}

// read reads on in the journal of a destination, by the rules of the protocol. A message
// that may not follow the one before is an error. The last line may be torn; it is read
// when it is whole.
func (j *journal) read(dir string) error {
	f, err := os.Open(filepath.Join(dir, journalFile))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, j.offset, math.MaxInt64-j.offset))
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	j.offset += int64(len(text))
	for l := range bytes.Lines(text) {
		j.messages++
		var u update
		if err := json.Unmarshal(l, &u); err == nil && u.Update {
			j.update(&u)
			continue
		}
		var m message
		err := json.Unmarshal(l, &m)
		if err == nil {
			err = j.take(&m)
		}
		if err != nil {
			return fmt.Errorf("message %d of the journal in %s: %w: %.300s", j.messages, dir, err, l)
		}
	}
	return nil
}

func (j *journal) update(u *update) {
	for _, l := range u.Entries {
		j.held.apply(l)
	}
	if j.cursor = u.Cursor; u.Baseline && len(u.Entries) == 0 {
		j.baselines++
	}
	j.whole = true
}

func (j *journal) take(m *message) (err error) {
	switch {
	case m.Anew:
		j.baseline, j.whole = nil, false
		j.rejoined++
	case m.Baseline != nil && *m.Baseline:
		err = j.part(m)
	case m.Baseline != nil:
		err = j.end(m)
	case m.Diverged:
		err = fmt.Errorf("the hub says that the log diverged")
	case !j.whole || m.After != j.cursor:
		err = fmt.Errorf("changes after %s follow %s", m.After, j.cursor)
	}
	if err == nil && !j.reading() {
		err = each(m.Changes, func(l line) error {
			j.held.apply(l)
			return nil
		})
	}
	j.cursor = m.Cursor
	return err
}

func (j *journal) reading() bool { return j.baseline != nil }

// part takes a part of a baseline.
func (j *journal) part(m *message) error {
	switch {
	case m.Restart:
		j.restarts++
		j.baseline = fold{}
	case j.baseline == nil:
		j.baseline = fold{}
	case m.After != j.cursor:
		return fmt.Errorf("a part after %s follows %s", m.After, j.cursor)
	case len(m.Resources) == 0: // the first message of a connection
		j.resumed++
	}
	last := ""
	return each(m.Resources, func(l line) error {
		if _, twice := j.baseline[l.Loc]; twice || l.Loc <= last || l.Change == "deleted" {
			return fmt.Errorf("the resource %s stands behind %s", l.Loc, last)
		}
		last = l.Loc
		j.baseline.apply(l)
		return nil
	})
}

// end takes the end of a baseline.
func (j *journal) end(m *message) error {
	if j.baseline == nil {
		if m.After != j.cursor { // the answer of a connection that goes on behind it
			return fmt.Errorf("the end of a baseline without one, after %s", j.cursor)
		}
		return nil
	}
	if m.Restart { // of a baseline that has no resources now
		j.restarts++
		j.baseline = fold{}
	}
	got := j.baseline.look("")
	if m.Count != got.Count || m.Position != got.Position || m.Content != got.Content {
		return fmt.Errorf("the baseline has %+v", got)
	}
	if !m.Complete { // nothing may be deleted because of it
		for loc, l := range j.held {
			if _, named := j.baseline[loc]; !named {
				j.baseline[loc] = l
			}
		}
	}
	j.held, j.baseline, j.whole = j.baseline, nil, true
	j.baselines++
	return nil
}

// each calls take with every change.
func each(all []json.RawMessage, take func(line) error) error {
	for _, raw := range all {
		var l line
		err := json.Unmarshal(raw, &l)
		if err == nil {
			err = take(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
