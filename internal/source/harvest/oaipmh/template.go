package oaipmh

import (
	"net/url"
	"strings"

	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/resourcesync"
)

// A Template makes the URL of a record's resource. It is a URL with {identifier}, which is replaced
// by the record's identifier, or {local}, which is replaced by the part of the identifier after
// oai:NAME:. The zero Template gives the URL at which the repository returns the record itself
// (GetRecord). Metadata gives the first URL that the record's metadata has as an identifier.
type Template string

// Metadata is the Template for repositories whose metadata has the URL as an identifier, as in
// dc:identifier.
const Metadata Template = "dc:identifier"

// Check returns an error unless the Template makes a different URL from each identifier. The error
// is a *resourcesync.Error.
func (t Template) Check() error {
	if t == "" || t == Metadata {
		return nil
	}
	if !strings.Contains(string(t), "{identifier}") && !strings.Contains(string(t), "{local}") {
		return resourcesync.Invalidf("the template %s has neither {identifier} nor {local}: all records would have the same URL", resourcesync.Shorten(string(t)))
	}
	example, err := idn.URL(t.fill("oai:example.org:1"))
	if err != nil {
		return resourcesync.Invalidf("the template: %v", err)
	}
	return resourcesync.CheckURI("the template", example)
}

// locOf returns the URL of a record's resource, or the rule that it breaks.
func (t Template) locOf(r *Repository, prefix string, rec *Record) (loc, rule string) {
	switch {
	case t == "":
		u, err := url.Parse(r.URL)
		if err != nil {
			return "", "invalid base URL of the repository"
		}
		u.User = nil
		q := u.Query()
		q.Set("verb", "GetRecord")
		q.Set("metadataPrefix", prefix)
		q.Set("identifier", rec.Identifier)
		u.RawQuery = q.Encode()
		loc = u.String()
	case t != Metadata:
		loc = t.fill(rec.Identifier)
	case len(rec.URLs) == 0:
		return "", "the metadata has no URL as an identifier"
	default:
		loc = rec.URLs[0]
	}
	if ascii, err := idn.URL(loc); err == nil {
		loc = ascii
	}
	if err := resourcesync.CheckURI("its URL", loc); err != nil {
		return "", err.Error()
	}
	return loc, ""
}

func (t Template) fill(identifier string) string {
	local := identifier
	if rest, ok := strings.CutPrefix(identifier, "oai:"); ok {
		if _, after, ok := strings.Cut(rest, ":"); ok {
			local = after
		}
	}
	fill := func(text string, escape func(string) string) string {
		return strings.NewReplacer("{identifier}", escape(identifier), "{local}", escape(local)).Replace(text)
	}
	path, query, hasQuery := strings.Cut(string(t), "?")
	if path = fill(path, escapePath); !hasQuery {
		return path
	}
	return path + "?" + fill(query, url.QueryEscape)
}

// escapePath encodes the bytes that a path cannot have. Slashes of an identifier stay, because the
// URLs of arXiv and DOIs have them.
func escapePath(s string) string {
	segments := strings.Split(s, "/")
	for i := range segments {
		segments[i] = url.PathEscape(segments[i])
		if segments[i] == "." || segments[i] == ".." {
			segments[i] = strings.ReplaceAll(segments[i], ".", "%2E")
		}
	}
	return strings.Join(segments, "/")
}
