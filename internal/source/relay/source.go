package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
)

// A Source has the URLs of a source's documents. It has a Change List, a list of resources, or
// both; or it is a Repository.
type Source struct {
	ChangeList   string      `json:"changelist,omitempty"`   // a Change List, or an index of them
	ResourceList string      `json:"resourcelist,omitempty"` // a Resource List, a sitemap, or an index of them
	Repository   *Repository `json:"repository,omitempty"`
}

// A Repository is a repository that speaks OAI-PMH.
type Repository struct {
	URL    string          `json:"url"`              // the base URL
	Prefix string          `json:"prefix,omitempty"` // metadataPrefix; default: oai_dc
	Set    string          `json:"set,omitempty"`    // setSpec; default: all records
	Loc    oaipmh.Template `json:"loc,omitempty"`    // template of the URLs of the resources
}

// String describes the source in a few words.
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

// Find finds the source at a URL: a Source Description or a Capability List with the documents that
// it names, a Change List, a Resource List or a sitemap, the base URL of a repository, or a site,
// in the order of discovery.Find. Find also accepts a list that only a lenient reader can read. It
// prefers the repository that the API catalog of a site names to a sitemap, because a repository
// lists deletions and changes. While a server is busy or unreachable, Find starts over as often as
// getter requests a document. The error is a *discovery.MultipleSets if the URL leads to several
// sets of resources.
func Find(ctx context.Context, getter *harvest.Getter, target string) (Source, error) {
	return retryFind(ctx, getter, target, false)
}

// FindList is Find for callers that only read lists: it prefers the sitemap of a site to the
// repository that the API catalog of the site names.
func FindList(ctx context.Context, getter *harvest.Getter, target string) (Source, error) {
	return retryFind(ctx, getter, target, true)
}

func retryFind(ctx context.Context, getter *harvest.Getter, target string, lists bool) (s Source, err error) {
	once := getter.Once()
	err = getter.Retry(ctx, func() error {
		s, err = find(ctx, once, target, lists)
		return err
	})
	return s, err
}

func find(ctx context.Context, getter *harvest.Getter, target string, lists bool) (Source, error) {
	found, err := discovery.Find(ctx, getter, target)
	listed := err == nil && (found.ChangeList != "" || found.ResourceList != "" || found.Sitemap != "")
	if err == nil && found.Repository != "" && !(lists && listed) {
		return Source{Repository: &Repository{URL: found.Repository}}, nil
	}
	if listed {
		s := Source{ChangeList: found.ChangeList, ResourceList: found.ResourceList}
		if s.ResourceList == "" {
			s.ResourceList = found.Sitemap
		}
		return s, nil
	}
	if _, several := errors.AsType[*discovery.MultipleSets](err); several || ctx.Err() != nil || harvest.IsAway(err) && !isAnswer(err) {
		return Source{}, err
	}
	if _, is := FindRepository(ctx, getter, target); is == nil {
		return Source{Repository: &Repository{URL: target}}, nil
	}
	l := &harvest.Lister{Getter: getter}
	for _, listErr := range l.Resources(ctx, target) {
		if _, skipped := errors.AsType[*harvest.Skipped](listErr); listErr == nil || skipped {
			return Source{ResourceList: target}, nil
		}
		return Source{}, noSourceError(target, err, listErr)
	}
	return Source{ResourceList: target}, nil // a list without resources
}

// isAnswer reports whether an error is an HTTP response. A repository may answer anything to a
// request that is not OAI-PMH.
func isAnswer(err error) bool {
	f, ok := errors.AsType[*outbound.Failure](err)
	return ok && f.Status != 0
}

// noSourceError returns the error for a URL that leads to no source. It omits the query, which may
// be a secret.
func noSourceError(target string, err, asList error) error {
	if err == nil {
		err = errors.New("no Change Lists and no lists of resources")
	}
	if _, failed := errors.AsType[*outbound.Failure](err); failed { // reading it as a list failed, too; such an error contains no secret
		return fmt.Errorf("find a source at the URL: %w", err)
	}
	text := err.Error()
	if _, query, ok := strings.Cut(target, "?"); ok && query != "" {
		text = strings.ReplaceAll(text, query, "…")
	}
	return fmt.Errorf("find a source at the URL: %s (read as a list: %w)", text, asList)
}

// FindRepository sends the Identify request to a repository.
func FindRepository(ctx context.Context, getter *harvest.Getter, target string) (*oaipmh.Identity, error) {
	return (&oaipmh.Repository{Getter: getter.Once(), URL: target}).Identify(ctx)
}
