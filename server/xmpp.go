package server

import (
	"context"
	"slices"

	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/xmpp"
)

// MinStanza is the least that XMPP.MaxStanza may be.
const MinStanza = xmpp.MinStanza

// An XMPP says what is published over XMPP. Without Server nothing is, and the rest does not
// count.
type XMPP struct {
	Server    string   // address (HOST:PORT) where the XMPP server takes components
	Domain    string   // of the component that the hub is
	Secret    string   // of the component
	Service   string   // JID of the pubsub service
	Sets      []string // that are published
	Topics    bool     // a node has the URL of a topic as its name; default: the name of the set
	MaxStanza int      // in bytes; default 64 KiB
}

// check refuses what is missing.
func (x *XMPP) check(refuse func(field, format string, args ...any)) {
	for _, f := range []struct{ field, value string }{{"Domain", x.Domain}, {"Secret", x.Secret}, {"Service", x.Service}} {
		if x.Server != "" && f.value == "" {
			refuse("XMPP."+f.field, "is empty, and Config.XMPP.Server is set")
		}
	}
	if x.MaxStanza != 0 && x.MaxStanza < MinStanza {
		refuse("XMPP.MaxStanza", "is %d; it is at least %d", x.MaxStanza, MinStanza)
	}
	for i, set := range x.Sets {
		if err := feed.CheckSet(set); err != nil {
			refuse("XMPP.Sets", "has a bad name: %w", err)
		}
		if slices.Contains(x.Sets[:i], set) {
			refuse("XMPP.Sets", "has %s twice", set)
		}
	}
}

// xmppFailure is the kind of a failed attempt to publish over XMPP.
const xmppFailure = "xmpp"

// wireXMPP returns what publishes over XMPP; nil: nothing does.
func (s *Server) wireXMPP(ctx context.Context, base feed.Base, store *store, p *parts) (*xmpp.Publisher, error) {
	x := &s.config.XMPP
	if x.Server == "" {
		return nil, nil
	}
	kept, claims, err := s.config.published(ctx, store, xmpp.Kind)
	if err != nil {
		return nil, err
	}
	account := xmpp.Account{Server: x.Server, Domain: x.Domain, Secret: x.Secret, Service: x.Service}
	return xmpp.New(x.Sets, base, account, p.hub, store.memory, kept, claims, xmpp.Options{
		Topics: x.Topics, MaxStanza: x.MaxStanza, Delivered: p.activity.Delivered, Logger: s.log, Metrics: s.metrics,
		Outcome: func(set string, err error) {
			if err == nil {
				p.activity.Right(xmppFailure, set, "")
				return
			}
			p.activity.Went(activity.Failure{Kind: xmppFailure, Set: set, Where: x.Service, Text: err.Error()})
		},
	}), nil
}
