package subscribe

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// everySet is the name that stands for all sets in messages of a session.
const everySet = "*"

// A command is a message of a client to a session. Messages are executed in the order in which they
// arrive.
type command struct {
	id       json.RawMessage // id that the answer repeats; nil if none
	follow   string          // set to follow, or everySet; empty if none
	unfollow string          // set to stop following, or everySet; empty if none
	since    string          // start of follow
	time     time.Time       // since as a datetime, for everySet; zero if it is none
	filter   *feed.Filter    // filter of follow; nil if it selects everything
	err      error           // error to answer instead; nil if the message is valid
	size     int             // size of the message in bytes
}

// A values is a JSON string, or an array of strings.
type values []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(text []byte) error {
	*v = []string{""}
	if json.Unmarshal(text, &(*v)[0]) == nil || json.Unmarshal(text, (*[]string)(v)) == nil {
		return nil
	}
	return resourcesync.Invalidf("change and type: want a string or an array of strings")
}

// maxID is the maximum size of the id of a message in bytes of JSON.
const maxID = 128

// parseCommand parses a message. If it is invalid, the result has an err, and the id if that could be
// read.
func parseCommand(text []byte) command {
	var m struct {
		ID         json.RawMessage `json:"id"`
		Follow     *string         `json:"follow"`
		Unfollow   *string         `json:"unfollow"`
		Since      string          `json:"since"`
		Prefix     string          `json:"prefix"`
		Change     values          `json:"change"`
		Type       values          `json:"type"`
		Collection string          `json:"collection"`
	}
	err := resourcesync.DecodeJSON(text, &m)
	c := command{}
	switch {
	case len(m.ID) > maxID:
		err = resourcesync.Invalidf("id: got %d bytes, want at most %d", len(m.ID), maxID)
	case len(m.ID) > 0 && m.ID[0] != '"' && !isDigit(m.ID[len(m.ID)-1]):
		err = resourcesync.Invalidf("id: want a string or a number")
	case len(m.ID) > 0:
		c.id = m.ID
	}
	if c.err = err; err != nil {
		return c
	}
	filter := url.Values{"change": m.Change, "type": m.Type}
	if m.Prefix != "" {
		filter.Set("prefix", m.Prefix)
	}
	if m.Collection != "" {
		filter.Set("collection", m.Collection)
	}
	switch {
	case m.Follow != nil && m.Unfollow == nil:
		c.follow, c.since = *m.Follow, m.Since
		c.err = c.setFilter(filter)
	case m.Unfollow != nil && m.Follow == nil:
		c.unfollow = *m.Unfollow
		if m.Since != "" || len(m.Change)+len(m.Type) > 0 || m.Prefix != "" || m.Collection != "" {
			c.err = resourcesync.Invalidf("unfollow: want no other member than id")
		}
	default:
		c.err = resourcesync.Invalidf(`got a message with both or neither of "follow" and "unfollow"; want one of them`)
	}
	if set := c.set(); c.err == nil && set != everySet {
		c.err = feed.CheckSet(set)
	}
	return c
}

// setFilter checks the terms of a follow, and sets the filter.
func (c *command) setFilter(q url.Values) error {
	f, err := feed.ParseFilter(q)
	if err != nil {
		return err
	}
	if !f.IsZero() {
		c.filter = &f
	}
	if c.follow == everySet && c.since != "" && c.since != "now" && c.since != "start" {
		if c.time, err = resourcesync.ParseTime(c.since); err != nil {
			return resourcesync.Invalidf("follow %q: got since %q, want now, start or a datetime; name a set to follow it from a cursor or with a baseline", everySet, resourcesync.Shorten(c.since))
		}
	}
	return nil
}

// set returns the set of the command, or everySet.
func (c *command) set() string { return c.follow + c.unfollow }

func isDigit(c byte) bool { return strings.IndexByte("0123456789", c) >= 0 }
