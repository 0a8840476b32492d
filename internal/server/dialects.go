package server

import (
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/internal/dialect/activitystreams"
	"github.com/rshub/rshub/internal/dialect/atom"
	"github.com/rshub/rshub/internal/dialect/changeset"
)

// dialects returns the formats of other standards.
func dialects() []*dialect.Form {
	return []*dialect.Form{activitystreams.Form, atom.Form, changeset.Form}
}

// formats returns the dialects for callbacks, by the name of their topic in a set.
func formats(base feed.Base) map[string]*outlet.Format {
	all := map[string]*outlet.Format{}
	for _, f := range dialects() {
		if f.Begin == "" {
			continue
		}
		all[f.Newest] = &outlet.Format{
			Batch: f.BatchFormat(base), Begin: []byte(f.Begin), End: []byte(f.End),
			Head: func(b *feed.Batch) []byte { return f.Head(nil, f.PushedPage(base, b)) },
			Tail: f.Tail(nil, nil),
		}
	}
	return all
}
