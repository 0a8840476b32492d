package relay

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/rshub/rshub/discovery"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/harvest/oaipmh"
)

// A Source says where a source has what. It has a Change List, a list of resources, or
// both; or it is a Repository.
type Source struct {
	ChangeList   string      `json:"changelist,omitempty"`   // a Change List, or an index of them
	ResourceList string      `json:"resourcelist,omitempty"` // a Resource List, a sitemap, or an index of them
	Repository   *Repository `json:"repository,omitempty"`
}

// A Repository is one that speaks OAI-PMH.
type Repository struct {
	URL    string          `json:"url"`              // the base URL
	Prefix string          `json:"prefix,omitempty"` // metadataPrefix; default: oai_dc
	Set    string          `json:"set,omitempty"`    // setSpec; default: all records
	Loc    oaipmh.Template `json:"loc,omitempty"`    // where the resources are
}

// String says in a few words what the source is.
func (s *Source) String() string {
	switch {
	case s.Repository != nil:
		return "a repository that speaks OAI-PMH"
	case s.ChangeList != "" && s.ResourceList != "":
		return "Change Lists, and a Resource List"
	case s.ChangeList != "":
		return "Change Lists"
	}
	return "a list of resources"
}

func (p *Repository) harvest(r *Relay) *oaipmh.Harvest {
	return &oaipmh.Harvest{
		Repository: &oaipmh.Repository{Getter: r.lister.Getter, URL: p.URL},
		Prefix:     p.Prefix, Set: p.Set, Loc: p.Loc,
		Note: r.opts.Note,
	}
}

// Find finds out what is at a URL: a Source Description or a Capability List with what it
// names, a Change List, a Resource List or a sitemap, or the base URL of a repository. A
// list is found, too, when only a lenient reader can read it. Find asks each server once,
// and does not wait for it. The error is a
// *discovery.Several when the URL leads to several sets of resources.
func Find(ctx context.Context, getter *harvest.Getter, target string) (Source, error) {
	found, err := discovery.Find(ctx, getter.Client, target)
	if err == nil && (found.ChangeList != "" || found.ResourceList != "" || found.Sitemap != "") {
		s := Source{ChangeList: found.ChangeList, ResourceList: found.ResourceList}
		if s.ResourceList == "" {
			s.ResourceList = found.Sitemap
		}
		return s, nil
	}
	if _, several := errors.AsType[*discovery.Several](err); several || ctx.Err() != nil {
		return Source{}, err
	}
	if _, is := FindRepository(ctx, getter, target); is == nil {
		return Source{Repository: &Repository{URL: target}}, nil
	}
	l := &harvest.Lister{Getter: getter.Once()}
	for _, listErr := range l.Resources(ctx, target) {
		if listErr == nil {
			return Source{ResourceList: target}, nil
		}
		return Source{}, nothing(target, err, listErr)
	}
	return Source{ResourceList: target}, nil // a list without resources
}

// nothing says that a URL leads to nothing. It does not show the query, which may be a
// secret.
func nothing(target string, err, asList error) error {
	if err == nil {
		err = errors.New("it names neither Change Lists nor lists of resources")
	}
	_, unreachable := errors.AsType[*url.Error](err)
	_, refused := errors.AsType[*discovery.Refused](err)
	text := err.Error()
	if _, query, ok := strings.Cut(target, "?"); ok && query != "" {
		text = strings.ReplaceAll(text, query, "…")
	}
	if unreachable || refused { // so was the list
		return fmt.Errorf("the URL leads to no source that can be relayed: %s", text)
	}
	return fmt.Errorf("the URL leads to no source that can be relayed: %s (read as a list: %w)", text, asList)
}

// FindRepository asks a repository who it is.
func FindRepository(ctx context.Context, getter *harvest.Getter, target string) (*oaipmh.Identity, error) {
	return (&oaipmh.Repository{Getter: getter.Once(), URL: target}).Identify(ctx)
}
