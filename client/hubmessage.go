package client

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
)

// everySet is the name that stands for all sets in the messages of FollowAll.
const everySet = "*"

// maxCommand is the maximum size in bytes of a message to the hub.
const maxCommand = 16 << 10

// A command is a message of FollowAll to the hub.
type command struct {
	Follow     string   `json:"follow,omitempty"`
	Unfollow   string   `json:"unfollow,omitempty"`
	Since      string   `json:"since,omitempty"`
	Prefix     string   `json:"prefix,omitempty"`
	Change     []string `json:"change,omitempty"`
	Type       []string `json:"type,omitempty"`
	Collection string   `json:"collection,omitempty"`
}

// newFollow returns the command to follow a set.
func newFollow(set, since string, f *feed.Filter) command {
	q := f.Values()
	return command{Follow: set, Since: since, Prefix: f.Prefix, Change: q["change"], Type: q["type"], Collection: f.Collection}
}

func (m command) text() []byte {
	text, _ := json.Marshal(m) // strings only
	return text
}

// A hubMessage is a message of the hub to FollowAll. At most one of batch, problem, followed,
// unfollowed and cursors is set. None is set in a message of a kind that FollowAll does not know.
type hubMessage struct {
	batch      *feed.Batch
	set        string // set of problem; everySet, or empty if the hub could not read a command
	problem    *feed.Problem
	floor      feed.Cursor // oldest cursor of the set that works; zero if unknown
	followed   string      // everySet
	unfollowed string      // set, or everySet
	cursors    map[string]feed.Cursor
}

// decodeMessage decodes a message of the subprotocol rs.json+zstd. An error is an ErrNotHub.
func decodeMessage(opcode byte, data []byte) (hubMessage, error) {
	if opcode != opBinary {
		return hubMessage{}, notHubError("got a text message, want compressed JSON")
	}
	if n, ok := zst.Size(data); ok && n > maxMessage {
		return hubMessage{}, notHubError(fmt.Sprintf("got a message of %d bytes, want at most %d", n, maxMessage))
	}
	text, err := zst.Decode(data)
	if err != nil {
		return hubMessage{}, notHubError(fmt.Sprintf("decompress message: %v", err))
	}
	m, err := parseMessage(text)
	if err != nil {
		return hubMessage{}, notHubError(fmt.Sprintf("read message: %v", err))
	}
	return m, nil
}

// parseMessage parses the JSON of a message.
func parseMessage(text string) (hubMessage, error) {
	isBatch, err := hasChanges(text)
	if err != nil {
		return hubMessage{}, err
	}
	if isBatch {
		b, _, err := feed.ReadBatch(strings.NewReader(text), resourcesync.Limits{Bytes: maxMessage})
		return hubMessage{batch: b}, err
	}
	var a struct {
		Set        string
		Followed   string
		Unfollowed string
		Cursors    map[string]string
		Error      *struct {
			feed.Problem
			Cursor string
		}
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return hubMessage{}, err
	}
	m := hubMessage{followed: a.Followed, unfollowed: a.Unfollowed}
	if m.followed != "" && m.followed != everySet {
		return hubMessage{}, fmt.Errorf("followed: got %.80q, want %q", m.followed, everySet)
	}
	if err := checkName(m.unfollowed); err != nil {
		return hubMessage{}, err
	}
	if len(a.Cursors) > 0 {
		if m.cursors, err = parseCursors(a.Cursors); err != nil {
			return hubMessage{}, err
		}
	}
	if a.Error == nil {
		return m, m.checkKind()
	}
	m.set, m.problem = a.Set, &a.Error.Problem
	if err := checkName(m.set); err != nil {
		return hubMessage{}, err
	}
	if m.problem.Status < 400 || m.problem.Status > 599 {
		return hubMessage{}, fmt.Errorf("error: got status %d, want 400 to 599", m.problem.Status)
	}
	if a.Error.Cursor != "" {
		if m.floor, err = feed.ParseCursor(a.Error.Cursor); err != nil {
			return hubMessage{}, err
		}
	}
	problem.Clean(m.problem)
	return m, m.checkKind()
}

// hasChanges reports whether a message is a batch. It reads the message up to the first member that
// tells.
func hasChanges(text string) (bool, error) {
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false, fmt.Errorf("got %.40q, want a JSON object", text)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false, err
		}
		switch name {
		case "after", "from", "until", "cursor", "diverged", "changes":
			return true, nil
		case "followed", "unfollowed", "cursors", "error":
			return false, nil
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return false, err
		}
	}
	return false, nil
}

// checkKind returns an error if m is of several kinds.
func (m *hubMessage) checkKind() error {
	kinds := 0
	for _, is := range []bool{m.problem != nil, m.followed != "", m.unfollowed != "", m.cursors != nil} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		return fmt.Errorf("got a message of %d kinds, want one", kinds)
	}
	return nil
}

// checkName returns an error unless a name is empty, everySet, or valid for a set.
func checkName(name string) error {
	if name == "" || name == everySet {
		return nil
	}
	return feed.CheckSet(name)
}

// parseCursors parses cursors of sets.
func parseCursors(texts map[string]string) (map[string]feed.Cursor, error) {
	cursors := make(map[string]feed.Cursor, len(texts))
	for _, set := range slices.Sorted(maps.Keys(texts)) {
		if err := feed.CheckSet(set); err != nil {
			return nil, err
		}
		at, err := feed.ParseCursor(texts[set])
		if err != nil {
			return nil, err
		}
		cursors[set] = at
	}
	return cursors, nil
}
