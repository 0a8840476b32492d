package harvest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/resourcesync"
)

// repairChange removes from a change the parts that a hub would refuse, and calls odd for each. The
// change itself stays.
func repairChange(c *resourcesync.Change, odd func(*resourcesync.Error)) {
	check := func(part resourcesync.Change) bool {
		part.Loc, part.Change = c.Loc, c.Change
		err := part.Validate()
		if e, ok := errors.AsType[*resourcesync.Error](err); ok {
			odd(e)
		}
		return err == nil
	}
	if c.Change == "" {
		return // Validate reports it
	}
	c.Changefreq = strings.ToLower(c.Changefreq)
	for _, part := range []struct {
		text *string
		only resourcesync.Change
	}{
		{&c.Changefreq, resourcesync.Change{Changefreq: c.Changefreq}},
		{&c.Hash, resourcesync.Change{Hash: c.Hash}},
		{&c.Type, resourcesync.Change{Type: c.Type}},
		{&c.Encoding, resourcesync.Change{Encoding: c.Encoding}},
		{&c.Path, resourcesync.Change{Path: c.Path}},
	} {
		if *part.text != "" && !check(part.only) {
			*part.text = ""
		}
	}
	c.Links = slices.DeleteFunc(c.Links, func(ln resourcesync.Link) bool { return !check(resourcesync.Change{Links: []resourcesync.Link{ln}}) })
	if len(c.Attrs) > 0 && !check(resourcesync.Change{Attrs: c.Attrs}) {
		c.Attrs = nil
	}
}

// resolveURL resolves a URL in a document at base. It encodes spaces and non-ASCII letters, writes
// the host as DNS has it, and drops a fragment.
func resolveURL(base *url.URL, loc string) (*url.URL, error) {
	if strings.ContainsAny(loc, "<>") { // markup, such as the entries after a CDATA section without its end
		return nil, errors.New("URL contains markup")
	}
	u, err := parseURL(strings.TrimSpace(loc))
	if err != nil {
		return nil, err
	}
	if base.Opaque == "" {
		plain := *base
		plain.User = nil
		u = plain.ResolveReference(u)
	}
	if err := idn.Host(u); err != nil {
		return nil, err
	}
	u.Fragment, u.RawFragment = "", ""
	u.RawQuery = encodeQuery(u.RawQuery)
	if err := resourcesync.CheckURI("URL", u.String()); err != nil {
		return nil, err
	}
	return parseURL(u.String()) // check again: //a:: parses with a host that no URL can have
}

// parseURL is url.Parse, with errors that do not repeat the text.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return u, err
}

// encodeQuery encodes the bytes that a query cannot have. It does not change encoded ones.
func encodeQuery(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7F || strings.IndexByte("\"<>\\^`{|}[]", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
