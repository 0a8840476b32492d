package websub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// ping takes the ping of a source: its topics have news (PubSubHubbub 0.3
// section 7.1, which WebSub leaves open). Sources name the topics in hub.url or
// in hub.topic, each of them as often as they like. All are looked at before the
// first fetch starts. An error names the one that is not accepted; to send the
// whole ping again does no harm.
func (s *Server) ping(ctx context.Context, form *form) error {
	if !form.Has("hub.url") && !form.Has("hub.topic") {
		return resourcesync.Invalidf("hub.url or hub.topic is missing; want a topic such as %s", s.base.Topic("SET"))
	}
	record, sets := trail.FromContext(ctx), []string(nil)
	record.SetAction(trail.Ping, "")
	type pinged struct{ name, topic, set string }
	var all []pinged
	for _, name := range []string{"hub.url", "hub.topic"} {
		for _, topic := range form.Values[name] {
			set, _, err := s.setOf(name, topic)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(p pinged) bool { return p.set == set }) {
				continue
			}
			sets = append(sets, set)
			record.SetAction(trail.Ping, strings.Join(sets[:min(len(sets), mostNoted)], ","))
			if err := access.MayPing(ctx, set); err != nil {
				return notPinged(name, topic, err)
			}
			all = append(all, pinged{name, topic, set})
		}
	}
	if s.opts.Sources == nil {
		return resourcesync.Invalidf("hub.mode=publish: this hub does not fetch changes; POST the changes instead")
	}
	for _, p := range all {
		if err := s.opts.Sources.Ping(ctx, p.set); err != nil {
			return notPinged(p.name, p.topic, err)
		}
	}
	return nil
}

// mostNoted is how many sets of a ping the audit log names.
const mostNoted = 8

// notPinged says of a problem which of the topics it is about.
func notPinged(name, topic string, err error) error {
	p := *problem.From(err)
	p.Detail = fmt.Sprintf("%s=%.200s: %s", name, topic, p.Detail)
	return &p
}
